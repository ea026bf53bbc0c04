#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE void cta_sync() { simt::cta_sync(); }
WEFT_INLINE void named_sync(int id, int threads) { simt::named_sync(id, threads); }
WEFT_INLINE void named_arrive(int id, int threads) { simt::named_arrive(id, threads); }
WEFT_INLINE void warp_sync() { simt::warp_sync(); }

}  // namespace weft::ptx
