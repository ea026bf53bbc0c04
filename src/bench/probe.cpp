#include "bench/probe.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "bench/loops.h"
#include "bench/stop.h"
#include "bench/timing.h"
#include "device/cpu/cpuid.h"
#include "weft/error.h"

namespace weft::bench {
namespace {

constexpr size_t kGranule = 4096;                    // workers' slices are whole pages
constexpr size_t kWrittenAtOnce = size_t{32} << 20;  // fresh pages, between two looks whether to stop
constexpr double kReadingSeconds = 2e-3;
constexpr double kReadingShare = 0.25;  // of a row's own time

const BenchLoops& loops() {
  switch (current_isa()) {
    WEFT_RETURN_PER_ISA(kBenchLoops)
    default: throw InternalError("an instruction set without loops to time");
  }
}

const BenchLoops::Work& work_of(Instruction instruction) {
  switch (instruction) {
    case Instruction::fp32_multiply_add: return loops().fp32;
    case Instruction::bf16_dot: return loops().bf16;
    case Instruction::int16_dot: return loops().int16;
    default: return loops().int8;
  }
}

std::vector<double> readings(const Probe& probe) {
  constexpr size_t kLeast = 5;
  constexpr double kSeconds = 0.1;
  std::vector<double> rates;
  stop_if_asked();
  probe();  // warms up
  for (const auto start = Clock::now(); rates.size() < kLeast || seconds_since(start) < kSeconds;) {
    stop_if_asked();
    rates.push_back(probe());
  }
  return rates;
}

}  // namespace

Probe probe_ops(WorkerTeam& team, Instruction instruction) {
  const BenchLoops::Work& work = work_of(instruction);
  if (work.run == nullptr) return {};
  const auto run = [&team, &work](long long rounds) {
    return seconds_of([&] { team.run([&](int) { work.run(rounds); }); });
  };
  long long rounds = 1000;
  while (std::min({run(rounds), run(rounds), run(rounds)}) < kReadingSeconds) {
    stop_if_asked();
    rounds *= 2;
  }
  const double ops = static_cast<double>(rounds * work.ops) * team.num_workers();
  return [run, rounds, ops] { return ops / run(rounds); };
}

Arithmetic arithmetic_of(WorkerTeam& team, Instruction preferred) {
  if (Probe ops = probe_ops(team, preferred)) return {preferred, ops};
  return {Instruction::fp32_multiply_add, probe_ops(team, Instruction::fp32_multiply_add)};
}

Probe probe_read(WorkerTeam& team, const char* memory, size_t size, size_t bytes, size_t passes) {
  const auto workers = static_cast<size_t>(team.num_workers());
  const size_t slice = bytes / workers / kGranule * kGranule;
  if (slice == 0 || bytes > size) throw InternalError("a reading of less than a page, or of more than there is");
  return [&team, memory, size, passes, slice, all = slice * workers, at = size_t{0}]() mutable {
    if (at + all > size) at = 0;
    const double seconds = seconds_of([&] {
      team.run([&](int worker) {
        loops().read(memory + at + static_cast<size_t>(worker) * slice, static_cast<long long>(slice),
                     static_cast<long long>(passes));
      });
    });
    at += all;
    return static_cast<double>(all * passes) / seconds;
  };
}

Workspace memory_to_read(WorkerTeam& team, size_t bytes) {
  Workspace memory(Device::cpu(), bytes);
  const auto workers = static_cast<size_t>(team.num_workers());
  const size_t slice = (bytes + workers - 1) / workers;
  team.run([&](int worker) {
    const size_t begin = std::min(bytes, static_cast<size_t>(worker) * slice);
    const size_t end = std::min(bytes, begin + slice);
    for (size_t at = begin; at < end && !asked_to_stop(); at += kWrittenAtOnce)
      std::memset(static_cast<char*>(memory.data()) + at, 1, std::min(end - at, kWrittenAtOnce));
  });
  stop_if_asked();
  return memory;
}

double best_of(const Probe& probe) {
  const std::vector<double> rates = readings(probe);
  return *std::max_element(rates.begin(), rates.end());
}

double median_of(const Probe& probe) { return median(readings(probe)); }

TimedBeside time_beside(const std::function<void()>& work, std::span<const Probe> probes, int min_runs,
                        double min_seconds) {
  stop_if_asked();
  work();  // warms up
  std::vector<double> seconds;
  std::vector<std::vector<double>> rates(probes.size());
  double worked = 0, read = 0;
  while (static_cast<int>(seconds.size()) < min_runs || worked < min_seconds) {
    stop_if_asked();
    seconds.push_back(seconds_of(work));
    worked += seconds.back();
    while (read < worked * kReadingShare && !probes.empty())
      read += seconds_of([&] {
        for (size_t i = 0; i < probes.size(); ++i) {
          stop_if_asked();
          rates[i].push_back(probes[i]());
        }
      });
  }
  TimedBeside result{.median_s = median(seconds), .ceilings = {}};
  for (const std::vector<double>& list : rates) result.ceilings.push_back(median(list));
  return result;
}

}  // namespace weft::bench
