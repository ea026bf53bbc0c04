#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

#if WEFT_SM >= 90
WEFT_INLINE void fence_async_shared() { simt::fence_async_shared(); }
WEFT_INLINE void fence_async_global() { simt::fence_async_global(); }
WEFT_INLINE void fence_mbarrier_init() { simt::fence_mbarrier_init(); }
#endif

}  // namespace weft::ptx
