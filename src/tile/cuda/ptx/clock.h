// Time, for waits that give up and for traces.
#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

// Nanoseconds, the same for all CTAs; moves in steps of up to 1 us.
WEFT_INLINE u64 global_ns() {
  u64 ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}
// Cycles of this multiprocessor.
WEFT_INLINE u64 cycles() {
  u64 count;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(count)::"memory");
  return count;
}
// Lets other warps go on, for up to 2 x ns; at most 1,000,000.
WEFT_INLINE void sleep_ns(u32 ns) { asm volatile("nanosleep.u32 %0;" ::"r"(ns) : "memory"); }

}  // namespace weft::ptx
