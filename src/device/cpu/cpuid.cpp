#include "device/cpu/cpuid.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <ranges>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "device/cpu/built_isas.h"
#include "device/cpu/cgroup.h"

namespace weft {
namespace {
constexpr Isa kIsas[] = {Isa::plain, Isa::avx2, Isa::avx512, Isa::avx512_bf16};
constexpr const char* kAvx2[] = {"-mavx2", "-mfma", "-mf16c", "-mbmi2"};
constexpr const char* kAvx512[] = {
    "-mavx2",     "-mfma",      "-mf16c",     "-mbmi2",       "-mavx512f",
    "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mprefer-vector-width=512"};
constexpr const char* kAvx512Bf16[] = {
    "-mavx2",      "-mfma",      "-mf16c",     "-mbmi2",       "-mavx512f",
    "-mavx512bw",  "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mprefer-vector-width=512",
    "-mavx512bf16"};

#if defined(__x86_64__)
// Not among the names that every compiler's __builtin_cpu_supports knows.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

std::string vendor_name() {
  unsigned eax = 0, name[3] = {};
  __get_cpuid(0, &eax, &name[0], &name[2], &name[1]);
  return std::string(reinterpret_cast<const char*>(name), sizeof name);
}
unsigned family() {
  unsigned eax = 0, other[3];
  __get_cpuid(1, &eax, &other[0], &other[1], &other[2]);
  const unsigned base = eax >> 8 & 15;
  return base == 15 ? base + (eax >> 20 & 255) : base;
}
#else
std::string vendor_name() { return {}; }
unsigned family() { return 0; }
#endif

// __builtin_cpu_supports asks the operating system too: without saved AVX state there is no AVX.
Isa detect() {
#if defined(__x86_64__)
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
        __builtin_cpu_supports("bmi2")))
    return Isa::plain;
  if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni")))
    return Isa::avx2;
  return __builtin_cpu_supports("avx512bf16") ? Isa::avx512_bf16 : Isa::avx512;
#else
  return Isa::plain;
#endif
}

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream in(path);
  std::getline(in, line);
  return line;
}

std::string model_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t begin = line.find_first_not_of(": \t", line.find(':'));
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "unknown CPU";
}

int cpus_in_affinity() {
  // The kernel's mask may be wider than cpu_set_t: EINVAL until the set is large enough.
  for (size_t sets = 1; sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    if (sched_getaffinity(0, sets * sizeof(cpu_set_t), mask.data()) == 0)
      return std::max(1, CPU_COUNT_S(sets * sizeof(cpu_set_t), mask.data()));
  }
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

// Of the first CPU's data or unified cache of this level; 0 when the system does not say.
size_t cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const std::string size = first_line(folder + "size");
    if (first_line(folder + "level") != fmt::format("{}", level) || first_line(folder + "type") == "Instruction")
      continue;
    size_t number = 0;
    for (char c : size) {
      if (c >= '0' && c <= '9') number = 10 * number + static_cast<size_t>(c - '0');
      if (c == 'K') return number << 10;
      if (c == 'M') return number << 20;
    }
    return number;
  }
  const int name = level == 1 ? _SC_LEVEL1_DCACHE_SIZE : level == 2 ? _SC_LEVEL2_CACHE_SIZE : _SC_LEVEL3_CACHE_SIZE;
  return static_cast<size_t>(std::max(0L, sysconf(name)));
}

}  // namespace

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::plain: return "plain";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512_bf16: return "avx512_bf16";
  }
  return "unknown";
}

Isa isa_from_string(std::string_view name) {
  for (Isa isa : kIsas)
    if (to_string(isa) == name) return isa;
  fail(ErrorCode::invalid_argument, "isa '{}' is not known; known are plain, avx2, avx512, avx512_bf16", name);
}

Isa detected_isa() {
  static const Isa isa = detect();  // a virtual machine asks its host, which takes microseconds
  return isa;
}

std::span<const Isa> built_isas() {
  static constexpr Isa kBuilt[] = {WEFT_BUILT_ISAS};
  return kBuilt;
}

std::span<const Isa> supported_isas() {
  const auto built = built_isas();
  static const auto end = std::upper_bound(built.begin(), built.end(), detected_isa());
  return {built.begin(), end};
}

void check_supported(Isa isa, std::string_view name) {
  const auto isas = supported_isas();
  check(std::ranges::find(isas, isa) != isas.end(), ErrorCode::unsupported,
        "{}: {} is not supported: this machine has {}, this build kernels for {}", name, to_string(isa),
        to_string(detected_isa()), fmt::join(isas | std::views::transform([](Isa i) { return to_string(i); }), ", "));
}

Isa current_isa() {
  static const Isa isa = [] {
    const auto wanted = env::isa();
    if (!wanted) return supported_isas().back();
    const Isa chosen = isa_from_string(*wanted);
    check_supported(chosen, "WEFT_ISA");
    return chosen;
  }();
  return isa;
}

std::span<const char* const> compiler_flags(Isa isa) {
  switch (isa) {
    case Isa::plain: return {};
    case Isa::avx2: return kAvx2;
    case Isa::avx512: return kAvx512;
    case Isa::avx512_bf16: return kAvx512Bf16;
  }
  return {};
}

bool is_bf16_dot_fast(std::string_view vendor) { return vendor == "AuthenticAMD"; }

bool is_bf16_dot_fast() {
  static const bool fast = detected_isa() == Isa::avx512_bf16 && is_bf16_dot_fast(vendor_name());
  return fast;
}

bool has_bf16_tiles() {
#if defined(__x86_64__)
  static const bool has = [] {
    constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (detected_isa() != Isa::avx512_bf16 || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return has;
#else
  return false;
#endif
}

bool are_vector_stores_halved(std::string_view vendor, unsigned family) {
  return vendor == "AuthenticAMD" && family == 25;
}

bool are_vector_stores_halved() {
  static const bool halved = detected_isa() >= Isa::avx512 && are_vector_stores_halved(vendor_name(), family());
  return halved;
}

const CpuInfo& cpu_info() {
  static const CpuInfo info = [] {
    CpuInfo i;
    i.model = model_name();
    i.num_cpus = cpus_in_affinity();
    i.quota = cgroup_quota();
    i.l1d_bytes = cache_bytes(1);
    i.l2_bytes = cache_bytes(2);
    i.l3_bytes = cache_bytes(3);
    return i;
  }();
  return info;
}

}  // namespace weft
