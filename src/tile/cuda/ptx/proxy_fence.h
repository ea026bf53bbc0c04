// Bulk copies go another way to memory than loads and stores do, the async proxy (from sm_90 on). What a thread stored
// is there for a copy behind a fence that a thread of the copy's CTA calls between the two: the one that stored, before
// it tells the one that copies, or the latter once it has been told. What a copy brought needs none: its wait is one.
#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

#if WEFT_SM >= 90
// Shared memory of the CTA.
WEFT_INLINE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Global memory. Where another CTA stored, this one calls it once it has acquired what that one released.
WEFT_INLINE void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// mbarriers that this thread has initialised, for copies that complete on them.
WEFT_INLINE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
#endif

}  // namespace weft::ptx
