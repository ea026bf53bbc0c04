// Barriers in shared memory that count arrivals of threads and bytes of bulk copies, phase after phase (from sm_90 on).
// A phase is over when as many arrivals as mbarrier_init says have come, and all bytes that they expect; the next one
// begins at once. Phase p has parity p % 2. A wait for the parity of the phase under way ends with that phase; a wait
// for the other parity passes at once, so the first wait of one who fills an empty ring is for parity 1.
//
//   if (thread == 0) { mbarrier_init(full, 1);  fence_mbarrier_init(); }
//   cta_sync();
//   if (thread == 0) { mbarrier_arrive_expect(full, bytes);  bulk_copy(tile, weights, bytes, full); }
//   mbarrier_wait(full, 0);  // every thread that reads the tile
#pragma once

#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

#if WEFT_SM >= 90
// 8 bytes of shared memory, 8-byte aligned, that hold no mbarrier; `arrivals` of a phase: 1 to 2^20 - 1. Copies
// complete on it behind fence_mbarrier_init(), other threads use it behind a barrier.
WEFT_INLINE void mbarrier_init(u64* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// The bytes are ordinary memory again.
WEFT_INLINE void mbarrier_inval(u64* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Releases what this thread did and saw before to those who wait for the phase.
WEFT_INLINE void mbarrier_arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives; the phase waits for `bytes` more of copies too. At most 2^20 - 1 bytes are expected at once.
WEFT_INLINE void mbarrier_arrive_expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
// Whether the phase of this parity is over: if so, what arrivals released and copies brought is there. It may wait a
// while before it says no.
WEFT_INLINE bool mbarrier_try_wait(u64* barrier, u32 parity) {
  u32 is_over;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(is_over)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return is_over != 0;
}
WEFT_INLINE void mbarrier_wait(u64* barrier, u32 parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}
#endif

}  // namespace weft::ptx
