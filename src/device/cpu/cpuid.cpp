#include "device/cpu/cpuid.h"

#include <thread>

#include "base/check.h"
#include "base/env.h"

namespace weft {
namespace {
constexpr Isa kIsas[] = {Isa::plain, Isa::avx2, Isa::avx512, Isa::avx512_bf16};
constexpr const char* kAvx2[] = {"-mavx2", "-mfma", "-mf16c", "-mbmi2"};
constexpr const char* kAvx512[] = {"-mavx2", "-mfma", "-mf16c", "-mbmi2", "-mavx512f", "-mavx512bw", "-mavx512dq",
                                   "-mavx512vl", "-mavx512vnni", "-mprefer-vector-width=512"};
constexpr const char* kAvx512Bf16[] = {"-mavx2", "-mfma", "-mf16c", "-mbmi2", "-mavx512f", "-mavx512bw", "-mavx512dq",
                                       "-mavx512vl", "-mavx512vnni", "-mprefer-vector-width=512", "-mavx512bf16"};
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
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
        __builtin_cpu_supports("bmi2")))
    return Isa::plain;
  if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni")))
    return Isa::avx2;
  return __builtin_cpu_supports("avx512bf16") ? Isa::avx512_bf16 : Isa::avx512;
}

std::span<const Isa> supported_isas() { return {kIsas, static_cast<size_t>(detected_isa()) + 1}; }

Isa current_isa() {
  static const Isa isa = [] {
    const Isa best = detected_isa();
    const auto wanted = env::isa();
    if (!wanted) return best;
    const Isa chosen = isa_from_string(*wanted);
    check(chosen <= best, ErrorCode::unsupported, "WEFT_ISA={}: this machine has {}; name that or a lower one", *wanted,
          to_string(best));
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

const CpuInfo& cpu_info() {
  static const CpuInfo info = [] {
    CpuInfo i;
    i.num_cpus = static_cast<int>(std::thread::hardware_concurrency());
    return i;
  }();
  return info;
}

}  // namespace weft
