// Where a thread stands in its launch, and the shared memory that the launch gave its CTA.
#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE int thread_index() { return static_cast<int>(threadIdx.x); }
WEFT_INLINE int num_threads() { return static_cast<int>(blockDim.x); }
WEFT_INLINE int cta_index() { return static_cast<int>(blockIdx.x); }
WEFT_INLINE int num_ctas() { return static_cast<int>(gridDim.x); }
WEFT_INLINE int lane() { return thread_index() % 32; }
WEFT_INLINE int warp() { return thread_index() / 32; }

// x, of which the compiler knows nothing: what follows from it is computed where it stands, and not ahead of a loop,
// where it would take a register all the while.
WEFT_INLINE int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Of the CTA, 1,024-byte aligned; its size is the launch's.
WEFT_INLINE u8* shared_memory() {
  extern __shared__ __align__(1024) unsigned char weft_shared_memory[];
  return weft_shared_memory;
}
// Its address as instructions take it.
WEFT_INLINE u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }
// A place in shared memory from which others lie a known number of bytes away: a sum that instructions take as it is.
using SharedPlace = u32;
WEFT_INLINE SharedPlace shared_place(const void* p) {
  return static_cast<u32>(opaque(static_cast<int>(shared_address(p))));
}

}  // namespace weft::ptx
