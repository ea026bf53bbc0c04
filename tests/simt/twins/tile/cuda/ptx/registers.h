#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

#if WEFT_SM >= 90
template <int registers>
WEFT_INLINE void decrease_registers() {
  simt::change_registers(registers, false);
}
template <int registers>
WEFT_INLINE void increase_registers() {
  simt::change_registers(registers, true);
}
#endif

}  // namespace weft::ptx
