#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE void prefetch(const void*) {}

}  // namespace weft::ptx
