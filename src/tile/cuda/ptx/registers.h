// Registers that warps of one CTA hand to each other (sm_90a). The kernel's threads begin with equally many: as many as
// its WEFT_KERNEL allows, by threads of a CTA and CTAs of a multiprocessor. All threads of a warpgroup, four warps from
// a multiple of four on, call the same function, with a barrier between two of its calls.
//
//   if (warp / 4 == 2) { decrease_registers<24>();  ... }  else { increase_registers<240>();  ... }   // of 3 x 168
#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

#if WEFT_SM >= 90
// Gives up what is beyond `registers` of each thread: 24 to 256, a multiple of 8, at most what it has.
template <int registers>
WEFT_INLINE void decrease_registers() {
  static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
// At least what it has; waits until others have given up enough.
template <int registers>
WEFT_INLINE void increase_registers() {
  static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
#endif

}  // namespace weft::ptx
