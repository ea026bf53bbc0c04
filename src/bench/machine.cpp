#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "bench/bench.h"
#include "device/cpu/cpuid.h"

namespace weft::bench {
namespace {

std::string first_value(const char* path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return {};
}

}  // namespace

std::string machine() {
  const CpuInfo& cpu = cpu_info();
  const double memory_kib = std::atof(first_value("/proc/meminfo", "MemTotal:").c_str());
  std::string system = first_value("/etc/os-release", "PRETTY_NAME=");
  std::erase(system, '"');
#if defined(__clang__)
  const std::string compiler = fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  const std::string compiler = fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
  return fmt::format("{}, {} CPU{} ({}), L1d {} KiB, L2 {} KiB, L3 {} KiB, {:.1f} GiB memory, {}, {}", cpu.model,
                     cpu.num_cpus, cpu.num_cpus == 1 ? "" : "s", to_string(current_isa()), cpu.l1d_bytes >> 10,
                     cpu.l2_bytes >> 10, cpu.l3_bytes >> 10, memory_kib / (1 << 20),
                     system.empty() ? "unknown system" : system, compiler);
}

}  // namespace weft::bench
