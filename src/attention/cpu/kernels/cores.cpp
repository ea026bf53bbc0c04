#include "attention/cpu/kernels/core.h"
#include "device/cpu/built_isas.h"
#include "weft/device.h"
#include "weft/error.h"

namespace weft::attention::cpu {

WEFT_DECLARE_PER_ISA(const CoreTable kCore)

const CoreTable& core_for(Isa isa) {
  switch (isa) {
    WEFT_RETURN_PER_ISA(kCore)
    default: throw InternalError("an instruction set without a core of attention");
  }
}

}  // namespace weft::attention::cpu
