#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE u32 atomic_add_acq_rel(u32* p, u32 x) { return simt::atomic(simt::AtomicOp::add, p, x, true); }
WEFT_INLINE u32 atomic_add(u32* p, u32 x) { return simt::atomic(simt::AtomicOp::add, p, x, false); }
WEFT_INLINE u32 atomic_or(u32* p, u32 x) { return simt::atomic(simt::AtomicOp::bit_or, p, x, false); }
WEFT_INLINE u32 load_acquire(const u32* p) { return simt::load_acquire(p); }
WEFT_INLINE void store_release(u32* p, u32 x) { simt::store_release(p, x); }
WEFT_INLINE void fence_gpu() { simt::fence_gpu(); }

}  // namespace weft::ptx
