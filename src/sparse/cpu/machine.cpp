#include "sparse/machine.h"

#include "device/cpu/cpuid.h"

namespace weft::sparse {

const Machine& machine() {
  static const Machine machine{.model = cpu_info().model,
                               .l1_bytes = static_cast<int64_t>(cpu_info().l1d_bytes),
                               .l2_bytes = static_cast<int64_t>(cpu_info().l2_bytes),
                               .l3_bytes = static_cast<int64_t>(cpu_info().l3_bytes),
                               .prefers_bf16_dots = current_isa() == Isa::avx512_bf16 && is_bf16_dot_fast()};
  return machine;
}

}  // namespace weft::sparse
