#pragma once

#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

WEFT_INLINE void wait_for_previous_kernel() { simt::wait_for_previous_kernel(); }
WEFT_INLINE void allow_next_kernel() {}

}  // namespace weft::ptx
