// Copies from global to shared memory that go on behind the thread's back: a thread's copies since its last commit are
// a group, and land, in order, when it waits; others see them behind the next barrier. Or they count at an mbarrier
// (from sm_90 on), and nobody waits but who reads them. Before sm_80 they land at once.
//
//   cp_async_16(...);  cp_async_arrive(full);  warp_sync();                  // all lanes of a warp
//   if (lane() == 0) mbarrier_arrive(full);
//   mbarrier_wait(full, parity);                                             // every thread that reads
#pragma once

#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

// 16 bytes, both sides 16-byte aligned. Of the source only the first `bytes` (0 to 16) are read, the rest of the
// destination becomes zero.
WEFT_INLINE void cp_async_16(SharedPlace shared, const void* global, int bytes = 16) {
#if WEFT_SM >= 80
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(__cvta_generic_to_global(global)),
               "r"(bytes)
               : "memory");
#else
  uint4 value;
  if (bytes == 16) {
    value = *static_cast<const uint4*>(global);
  } else {
    u32 words[4] = {};
    WEFT_UNROLL
    for (int i = 0; i < 15; ++i)
      if (i < bytes) words[i / 4] |= static_cast<u32>(static_cast<const u8*>(global)[i]) << (8 * (i % 4));
    value = make_uint4(words[0], words[1], words[2], words[3]);
  }
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
#endif
}
WEFT_INLINE void cp_async_16(void* shared, const void* global, int bytes = 16) {
  cp_async_16(shared_address(shared), global, bytes);
}
// A float.
WEFT_INLINE void cp_async_4(float* shared, const void* global) {
#if WEFT_SM >= 80
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)),
               "l"(__cvta_generic_to_global(global))
               : "memory");
#else
  *shared = *static_cast<const float*>(global);
#endif
}
WEFT_INLINE void cp_async_commit() {
#if WEFT_SM >= 80
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Until all groups of this thread but the last `pending` have landed.
template <int pending>
WEFT_INLINE void cp_async_wait() {
#if WEFT_SM >= 80
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}
#if WEFT_SM >= 90
// The phase under way at `barrier` (mbarrier.h) is not over until all copies that this thread has begun have landed. It
// is no arrival of the phase's: one of these must lie behind the call, or the phase may end before it.
WEFT_INLINE void cp_async_arrive(u64* barrier) {
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
#endif

}  // namespace weft::ptx
