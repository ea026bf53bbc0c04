// Memory that is asked for before it is read.
#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

// Global memory, to the cache that all CTAs share. Any address may be asked for.
WEFT_INLINE void prefetch(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p)) : "memory");
}

}  // namespace weft::ptx
