#pragma once

#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

#if WEFT_SM >= 90
WEFT_INLINE void mbarrier_init(u64* barrier, u32 arrivals) { simt::mbarrier_init(barrier, arrivals); }
WEFT_INLINE void mbarrier_inval(u64* barrier) { simt::mbarrier_inval(barrier); }
WEFT_INLINE void mbarrier_arrive(u64* barrier) { simt::mbarrier_arrive(barrier, 0); }
WEFT_INLINE void mbarrier_arrive_expect(u64* barrier, u32 bytes) { simt::mbarrier_arrive(barrier, bytes); }
WEFT_INLINE bool mbarrier_try_wait(u64* barrier, u32 parity) { return simt::mbarrier_try_wait(barrier, parity); }
WEFT_INLINE void mbarrier_wait(u64* barrier, u32 parity) { simt::mbarrier_wait(barrier, parity); }
#endif

}  // namespace weft::ptx
