#include "attention/cuda/architecture.h"

#include <fmt/ranges.h>

#include "base/check.h"
#include "jit/nvrtc/toolchain.h"

namespace weft::attention::cuda {
namespace {

constexpr int kKilobyte = 1024;
constexpr Architecture kArchitectures[] = {
    {"sm_75", 64 * kKilobyte, 64 * kKilobyte, false, false},  {"sm_80", 164 * kKilobyte, 163 * kKilobyte, true, false},
    {"sm_86", 100 * kKilobyte, 99 * kKilobyte, true, false},  {"sm_89", 100 * kKilobyte, 99 * kKilobyte, true, false},
    {"sm_90a", 228 * kKilobyte, 227 * kKilobyte, true, true},
};

}  // namespace

const Architecture& find_architecture(std::string_view name) {
  for (const Architecture& architecture : kArchitectures)
    if (architecture.name == name) return architecture;
  fail(ErrorCode::unsupported, "architecture '{}': required attention's tiles for it, supported {}, missing {}", name,
       fmt::join(jit::nvrtc_architectures(), ", "), name);
}

}  // namespace weft::attention::cuda
