#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE u32 atomic_add_acq_rel(u32* p, u32 x) {
  return simt::atomic(simt::AtomicOp::add, p, x, simt::Ordering::acq_rel);
}
WEFT_INLINE u32 atomic_add_release(u32* p, u32 x) {
  return simt::atomic(simt::AtomicOp::add, p, x, simt::Ordering::release);
}
WEFT_INLINE u32 atomic_add(u32* p, u32 x) { return simt::atomic(simt::AtomicOp::add, p, x, simt::Ordering::relaxed); }
WEFT_INLINE u32 atomic_add_shared(u32* p, u32 x) {
  return simt::atomic(simt::AtomicOp::add, p, x, simt::Ordering::relaxed);
}
WEFT_INLINE u32 atomic_or(u32* p, u32 x) { return simt::atomic(simt::AtomicOp::bit_or, p, x, simt::Ordering::relaxed); }
WEFT_INLINE u32 load_acquire(const u32* p) { return simt::load_acquire(p); }
WEFT_INLINE void store_release(u32* p, u32 x) { simt::store_release(p, x); }
WEFT_INLINE u64 load_relaxed(const u64* p) { return simt::load_relaxed(p); }
WEFT_INLINE void load_relaxed(const u64* p, u64 (&x)[2]) {
  simt::require_aligned_16(p);
  x[0] = simt::load_relaxed(p);
  x[1] = simt::load_relaxed(p + 1);
}
WEFT_INLINE void store_relaxed(u64* p, u64 x) { simt::store_relaxed(p, x); }
WEFT_INLINE void store_relaxed(u64* p, const u64 (&x)[2]) {
  simt::require_aligned_16(p);
  simt::store_relaxed(p, x[0]);
  simt::store_relaxed(p + 1, x[1]);
}
WEFT_INLINE u32 load_relaxed_shared(const u32* p) { return simt::load_relaxed(p); }
WEFT_INLINE void store_relaxed_shared(u32* p, u32 x) { simt::store_relaxed(p, x); }
WEFT_INLINE void fence_gpu() { simt::fence_gpu(); }

}  // namespace weft::ptx
