#include "attention/kernels/cpu/core.h"

namespace weft::attention::cpu {

namespace plain {
extern const CoreTable kCore;
}
namespace avx2 {
extern const CoreTable kCore;
}
namespace avx512 {
extern const CoreTable kCore;
}
namespace avx512_bf16 {
extern const CoreTable kCore;
}

const CoreTable& core_for(int isa) {
  static const CoreTable* const kCores[] = {&plain::kCore, &avx2::kCore, &avx512::kCore, &avx512_bf16::kCore};
  return *kCores[isa];
}

}  // namespace weft::attention::cpu
