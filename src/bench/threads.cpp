#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "base/clock.h"
#include "bench/measure.h"
#include "bench/stop.h"
#include "bench/timing.h"
#include "device/cpu/cpuid.h"
#include "weft/device.h"

namespace weft::bench {
namespace {

// The least that any fork and join can take: a cache line to another thread and back.
double round_trip_seconds(int runs) {
  constexpr int kTrips = 1000;
  alignas(128) std::atomic<int> there{0};
  alignas(128) std::atomic<int> back{0};
  std::jthread other([&](const std::stop_token& stop) {
    for (int seen = 0; !stop.stop_requested();) {
      const int now = there.load(std::memory_order_acquire);
      if (now == seen) continue;
      seen = now;
      back.store(seen, std::memory_order_release);
    }
  });
  int trip = 0;
  const Timing timing = time_runs(
      [&] {
        for (int i = 0; i < kTrips; ++i) {
          there.store(++trip, std::memory_order_release);
          while (back.load(std::memory_order_acquire) != trip) {
          }
        }
      },
      runs);
  return timing.best_s / kTrips;
}

// Arithmetic that takes about as long wherever it runs.
void work(long long steps) {
  double x = 1;
  for (long long i = 0; i < steps; ++i) {
    x = x * 1.0000001 + 1e-9;
    asm volatile("" : "+m"(x));
  }
}

long long steps_of(double seconds) {
  constexpr long long kSteps = 20000;
  return std::max(1LL, static_cast<long long>(seconds / time_runs([] { work(kSteps); }, 20, 0.05).best_s * kSteps));
}

// The peer: GNU's OpenMP, as a compiler calls it. Loaded at run time, so that nothing depends on it.
struct OpenMp {
  using Body = void (*)(void*);
  void (*parallel)(Body, void*, unsigned threads, unsigned flags) = nullptr;
  void (*barrier)() = nullptr;
  bool load() {
    void* library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    parallel = reinterpret_cast<decltype(parallel)>(dlsym(library, "GOMP_parallel"));
    barrier = reinterpret_cast<decltype(barrier)>(dlsym(library, "GOMP_barrier"));
    return parallel != nullptr && barrier != nullptr;
  }
};

constexpr int kRegions = 1000;          // fork/joins and barriers of one timed run
constexpr double kWorkSeconds = 40e-6;  // a layer's part of a token, about

class ThreadsBench {
 public:
  ThreadsBench(const BenchOptions& options, BenchReport& report)
      : report_(report), runs_(options.quick ? 10 : 50), seconds_(options.quick ? 0.2 : 1.0) {}

  template <class Run>
  void overhead(const std::string& who, const char* metric, double floor_s, Run&& run) {
    const Timing timing = time_runs(run, runs_);
    report_.add({.bench = "threads",
                 .name = fmt::format("{}: {}, median", who, metric),
                 .metric = "time",
                 .value = timing.median_s / kRegions * 1e9,
                 .unit = "ns",
                 .ceiling = floor_s * 1e9});
    report_.add({.bench = "threads",
                 .name = fmt::format("{}: {}, best", who, metric),
                 .metric = "time",
                 .value = timing.best_s / kRegions * 1e9,
                 .unit = "ns",
                 .ceiling = floor_s * 1e9});
  }

  // One region after another, alone and beside a thread that never rests: mean time of a region.
  template <class Run>
  void neighbour(const std::string& who, Run&& run) {
    const double quiet = mean_seconds(run);
    const double noisy = [&] {
      const std::jthread busy([](const std::stop_token& stop) {
        while (!stop.stop_requested()) work(100);
      });
      return mean_seconds(run);
    }();
    report_.add({.bench = "threads",
                 .name = fmt::format("{}: region of {:.0f} us, alone", who, kWorkSeconds * 1e6),
                 .metric = "time",
                 .value = quiet * 1e6,
                 .unit = "us",
                 .ceiling = kWorkSeconds * 1e6});
    report_.add({.bench = "threads",
                 .name = fmt::format("{}: the same beside a busy thread", who),
                 .metric = "time",
                 .value = noisy * 1e6,
                 .unit = "us",
                 .ceiling = quiet * 1e6});
  }

 private:
  template <class Run>
  double mean_seconds(Run& run) const {
    run();
    const auto begin = Clock::now();
    for (int regions = 1;; ++regions) {
      stop_if_asked();
      run();
      const double elapsed = seconds_since(begin);
      if (elapsed >= seconds_) return elapsed / regions;
    }
  }

  BenchReport& report_;
  int runs_;
  double seconds_;
};

}  // namespace

void measure_threads(const BenchOptions& options, BenchReport& report) {
  WorkerTeam team(options.threads);
  const int threads = team.num_workers();
  report.note(
      fmt::format("{} workers on {} CPUs. Ceiling of fork/join and barrier: a cache line to one other thread and back; "
                  "of a region: "
                  "its work alone, then the time without a neighbour",
                  threads, cpu_info().num_cpus));
  const double floor_s = threads > 1 ? round_trip_seconds(options.quick ? 10 : 50) : 0;
  const long long steps = steps_of(kWorkSeconds);
  ThreadsBench bench(options, report);
  bench.overhead("weft", "fork/join", floor_s, [&] {
    for (int i = 0; i < kRegions; ++i) team.run([](int) {});
  });
  bench.overhead("weft", "barrier", floor_s, [&] {
    team.run([&](int) {
      for (int i = 0; i < kRegions; ++i) team.barrier();
    });
  });
  bench.neighbour("weft", [&] { team.run([&](int) { work(steps); }); });

  // Last: its idle threads spin for long, and would be neighbours to what follows.
  OpenMp openmp;
  if (!openmp.load()) return report.note("OpenMP (libgomp.so.1) is not installed: no peer to compare with");
  const auto n = static_cast<unsigned>(threads);
  bench.overhead("OpenMP", "fork/join", floor_s, [&] {
    for (int i = 0; i < kRegions; ++i) openmp.parallel([](void*) {}, nullptr, n, 0);
  });
  bench.overhead("OpenMP", "barrier", floor_s, [&] {
    openmp.parallel(
        [](void* peer) {
          for (int i = 0; i < kRegions; ++i) static_cast<OpenMp*>(peer)->barrier();
        },
        &openmp, n, 0);
  });
  long long steps_argument = steps;
  bench.neighbour("OpenMP",
                  [&] { openmp.parallel([](void* s) { work(*static_cast<long long*>(s)); }, &steps_argument, n, 0); });
}

}  // namespace weft::bench
