#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "bench/measure.h"
#include "bench/probe.h"
#include "device/cpu/cgroup.h"
#include "device/cpu/cpuid.h"
#include "weft/device.h"

namespace weft::bench {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::string size_string(size_t bytes) {
  return bytes >= kMiB ? fmt::format("{} MiB", bytes / kMiB) : fmt::format("{} KiB", bytes >> 10);
}

}  // namespace

void measure_ceilings(const BenchOptions& options, BenchReport& report) {
  if (options.device != Device::cpu()) return measure_ceilings_on_card(options, report);
  WorkerTeam team(options.threads);
  const int threads = team.num_workers();
  const auto workers = static_cast<size_t>(threads);
  report.note(fmt::format("{} thread{}, {}, best of several runs; a multiplication or an addition is one operation",
                          threads, threads == 1 ? "" : "s", to_string(current_isa())));

  const CpuInfo& cpu = cpu_info();
  const size_t l2 = cpu.l2_bytes > 0 ? cpu.l2_bytes : kMiB / 2;
  const size_t l3 = cpu.l3_bytes > 0 ? cpu.l3_bytes : 32 * kMiB;
  // Beyond every cache, within memory.
  size_t dram = std::clamp(8 * l3, 256 * kMiB, (options.quick ? 512 : 2048) * kMiB);
  dram = std::min<size_t>(dram, available_memory() / 2);
  const struct {
    const char* level;
    size_t bytes;
  } reads[] = {{"L2", l2 / 2 * workers}, {"L3", std::max(l3 / 2, 2 * l2 * workers)}, {"DRAM", dram}};
  for (const auto& read : reads) {
    const Workspace memory = memory_to_read(team, read.bytes);
    const size_t passes = std::max<size_t>(1, 64 * kMiB / read.bytes);
    const auto* data = static_cast<const char*>(memory.data());
    report.add({.bench = "ceilings",
                .name = fmt::format("read {}, {}", read.level, size_string(read.bytes)),
                .metric = "bandwidth",
                .value = best_of(probe_read(team, data, read.bytes, read.bytes, passes)) * 1e-9,
                .unit = "GB/s"});
  }

  const struct {
    const char* name;
    Instruction instruction;
    const char* unit;
  } rates[] = {{"fp32 multiply-add", Instruction::fp32_multiply_add, "GFLOP/s"},
               {"bf16 dot product", Instruction::bf16_dot, "GFLOP/s"},
               {"int16 multiply-add of pairs", Instruction::int16_dot, "GOP/s"},
               {"int8 dot product", Instruction::int8_dot, "GOP/s"}};
  for (const auto& rate : rates)
    if (const Probe probe = probe_ops(team, rate.instruction))
      report.add({.bench = "ceilings",
                  .name = rate.name,
                  .metric = "rate",
                  .value = best_of(probe) * 1e-9,
                  .unit = rate.unit});
    else
      report.note(fmt::format("{}: not in {}", rate.name, to_string(current_isa())));
}

}  // namespace weft::bench
