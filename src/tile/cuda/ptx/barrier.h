// Barriers of a CTA and of a warp; what was written before one is read behind it.
#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

// All threads of the CTA, at the same call.
WEFT_INLINE void cta_sync() { asm volatile("bar.sync 0;" ::: "memory"); }
// `threads` of the CTA, a multiple of 32, at any calls that name the same barrier: id 1 to 15.
WEFT_INLINE void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Counts like named_sync, and does not wait.
WEFT_INLINE void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// All lanes of the warp.
WEFT_INLINE void warp_sync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

}  // namespace weft::ptx
