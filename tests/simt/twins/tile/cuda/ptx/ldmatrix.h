#pragma once

#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

WEFT_INLINE void ldmatrix_x4(u32 (&r)[4], const void* row) { simt::ldmatrix_x4(r, row, false); }
WEFT_INLINE void ldmatrix_x4_trans(u32 (&r)[4], const void* row) { simt::ldmatrix_x4(r, row, true); }

}  // namespace weft::ptx
