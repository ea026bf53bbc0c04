#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE int thread_index() { return simt::thread_index(); }
WEFT_INLINE int num_threads() { return simt::num_threads(); }
WEFT_INLINE int cta_index() { return simt::cta_index(); }
WEFT_INLINE int num_ctas() { return simt::num_ctas(); }
WEFT_INLINE int lane() { return thread_index() % 32; }
WEFT_INLINE int warp() { return thread_index() / 32; }
WEFT_INLINE int opaque(int x) { return x; }
using SharedPlace = u8*;
WEFT_INLINE SharedPlace shared_place(const void* p) { return static_cast<u8*>(const_cast<void*>(p)); }
WEFT_INLINE u8* shared_memory() { return simt::shared_memory(); }

}  // namespace weft::ptx
