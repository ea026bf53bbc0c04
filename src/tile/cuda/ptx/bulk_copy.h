// Copies of whole runs of bytes, which one thread starts and the card makes behind its back (from sm_90 on). Both sides
// are 16-byte aligned, and the bytes are a multiple of 16. They go through the async proxy (proxy_fence.h).
#pragma once

#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

#if WEFT_SM >= 90
// What the cache that all CTAs share does with lines that a copy reads.
using CachePolicy = u64;
// They go first: what is read once.
WEFT_INLINE CachePolicy evict_first() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// In their turn.
WEFT_INLINE CachePolicy evict_normal() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// They go last: what other CTAs read too.
WEFT_INLINE CachePolicy evict_last() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Global to shared memory. The bytes count at `barrier` (mbarrier.h), whose phase under way expects them; who waits for
// that phase reads them, and the source may be written from then on.
WEFT_INLINE void bulk_copy(void* shared, const void* global, u32 bytes, u64* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
WEFT_INLINE void bulk_copy(void* shared, const void* global, u32 bytes, u64* barrier, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// Shared to global memory. A thread's stores since its last commit are a group; it waits for groups.
WEFT_INLINE void bulk_store(void* global, const void* shared, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(global)),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}
WEFT_INLINE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all groups of this thread but the last `pending` have read their sources: those may be written again. The CTA
// must not end before.
template <int pending>
WEFT_INLINE void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
// Until what they write is there for this thread. What no wait has seen is there when the kernel ends.
template <int pending>
WEFT_INLINE void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}
#endif

}  // namespace weft::ptx
