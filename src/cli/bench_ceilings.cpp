#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>

#include "cli/bench.h"
#include "cli/bench_loops.h"
#include "device/cpu/cpuid.h"
#include "weft/device.h"
#include "weft/error.h"

namespace weft::cli {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGranule = 4096;  // workers' slices are whole pages

const BenchLoops& loops() {
  switch (current_isa()) {
    WEFT_RETURN_PER_ISA(kBenchLoops)
    default: throw InternalError("an instruction set without loops to time");
  }
}

// Operations per second of all workers together: the best of several runs, since it is a ceiling.
double measure_ops(int threads, const BenchLoops::Work& work) {
  if (work.run == nullptr) return 0;
  WorkerTeam team(threads);
  long long rounds = 1000;
  const auto run = [&] { team.run([&](int) { work.run(rounds); }); };
  constexpr double kRunSeconds = 2e-3;
  for (double seconds = 0; seconds < kRunSeconds;) {
    seconds = time_runs(run, 3, 0).best_s;
    if (seconds < kRunSeconds) rounds *= 2;
  }
  const double seconds = time_runs(run, 10, 0.1).best_s;
  return static_cast<double>(rounds * work.ops) * team.num_workers() / seconds;
}

size_t memory_bytes() {
  std::ifstream in("/proc/meminfo");
  for (std::string key, rest; in >> key && std::getline(in, rest);)
    if (key == "MemAvailable:") return static_cast<size_t>(std::max(0L, std::atol(rest.c_str()))) << 10;
  return 0;
}

std::string size_string(size_t bytes) {
  return bytes >= kMiB ? fmt::format("{} MiB", bytes / kMiB) : fmt::format("{} KiB", bytes >> 10);
}

}  // namespace

void read_memory(WorkerTeam& team, const char* data, size_t bytes, size_t passes) {
  const size_t slice = bytes / static_cast<size_t>(team.num_workers()) / kGranule * kGranule;
  team.run([&](int worker) {
    loops().read(data + static_cast<size_t>(worker) * slice, static_cast<long long>(slice),
                 static_cast<long long>(passes));
  });
}

double measure_read_bandwidth(int threads, size_t bytes) {
  WorkerTeam team(threads);
  const auto workers = static_cast<size_t>(team.num_workers());
  const size_t slice = std::max(kGranule, bytes / workers / kGranule * kGranule);
  const Workspace memory(Device::cpu(), slice * workers);
  char* data = static_cast<char*>(memory.data());
  // Written first: pages never written are all the same page of zeros. Each worker its own, where it will read.
  team.run([&](int worker) { std::memset(data + static_cast<size_t>(worker) * slice, 1, slice); });
  const size_t passes = std::max<size_t>(1, 64 * kMiB / (slice * workers));
  const auto run = [&] { read_memory(team, data, slice * workers, passes); };
  return static_cast<double>(slice * workers * passes) / time_runs(run, 5, 0.1).best_s;
}

double measure_fp32_flops(int threads) { return measure_ops(threads, loops().fp32); }
double measure_bf16_flops(int threads) { return measure_ops(threads, loops().bf16); }
double measure_int16_ops(int threads) { return measure_ops(threads, loops().int16); }
double measure_int8_ops(int threads) { return measure_ops(threads, loops().int8); }

void bench_ceilings(const BenchOptions& options, BenchReport& report) {
  const WorkerTeam team(options.threads);
  const int threads = team.num_workers();
  const auto workers = static_cast<size_t>(threads);
  report.note(fmt::format("{} thread{}, {}, best of several runs; a multiplication or an addition is one operation",
                          threads, threads == 1 ? "" : "s", to_string(current_isa())));

  const CpuInfo& cpu = cpu_info();
  const size_t l2 = cpu.l2_bytes > 0 ? cpu.l2_bytes : kMiB / 2;
  const size_t l3 = cpu.l3_bytes > 0 ? cpu.l3_bytes : 32 * kMiB;
  // Beyond every cache, within memory.
  size_t dram = std::clamp(8 * l3, 256 * kMiB, (options.quick ? 512 : 2048) * kMiB);
  if (const size_t free = memory_bytes(); free > 0) dram = std::min(dram, free / 2);
  const struct {
    const char* level;
    size_t bytes;
  } reads[] = {{"L2", l2 / 2 * workers}, {"L3", std::max(l3 / 2, 2 * l2 * workers)}, {"DRAM", dram}};
  for (const auto& read : reads)
    report.add({.bench = "ceilings",
                .name = fmt::format("read {}, {}", read.level, size_string(read.bytes)),
                .metric = "bandwidth",
                .value = measure_read_bandwidth(threads, read.bytes) * 1e-9,
                .unit = "GB/s"});

  const struct {
    const char* name;
    double (*measure)(int);
    const char* unit;
  } rates[] = {{"fp32 multiply-add", measure_fp32_flops, "GFLOP/s"},
               {"bf16 dot product", measure_bf16_flops, "GFLOP/s"},
               {"int16 multiply-add of pairs", measure_int16_ops, "GOP/s"},
               {"int8 dot product", measure_int8_ops, "GOP/s"}};
  for (const auto& rate : rates) {
    const double value = rate.measure(threads) * 1e-9;
    if (value > 0)
      report.add({.bench = "ceilings", .name = rate.name, .metric = "rate", .value = value, .unit = rate.unit});
    else
      report.note(fmt::format("{}: not in {}", rate.name, to_string(current_isa())));
  }
}

}  // namespace weft::cli
