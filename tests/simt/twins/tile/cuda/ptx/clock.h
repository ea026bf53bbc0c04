#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE u64 global_ns() { return simt::global_ns(); }
WEFT_INLINE u64 cycles() { return simt::global_ns(); }
WEFT_INLINE void sleep_ns(u32) { simt::sleep(); }

}  // namespace weft::ptx
