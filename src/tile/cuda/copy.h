// Rows of tensors to tiles in shared memory, 16 bytes at a time, behind the threads' backs (ptx/cp_async.h).
//
//   copy_rows<64, 128>(keys, thread, pool, [&](int row) { return row < n ? pool + offsets[row] : nullptr; });
//   cp_async_commit();
#pragma once

#include "tile/cuda/ptx/cp_async.h"
#include "tile/cuda/swizzle.h"

namespace weft::tile {

// kThreads threads of the CTA, `thread` of them this one, fill rows 0 to kRows - 1 of the tile; source(row) is where
// the row's 16-bit elements lie, 16-byte aligned, or null: then zeros, so that what a product takes of it is 0 and no
// NaN. `memory` is any address that source might give: a copy of no bytes is still told where from.
template <int kRows, int kThreads, int kColumns, class T, class Source>
WEFT_INLINE void copy_rows(const SharedTile<kColumns>& to, int thread, const T* memory, const Source& source) {
  constexpr int kChunks = SharedTile<kColumns>::kChunks;
  WEFT_UNROLL
  for (int i = 0; i < (kRows * kChunks + kThreads - 1) / kThreads; ++i) {
    const int at = thread + i * kThreads;
    if (kRows * kChunks % kThreads != 0 && at >= kRows * kChunks) break;
    const int row = at / kChunks, chunk = at % kChunks;
    const T* const from = source(row);
    ptx::cp_async_16(to.chunk(row, chunk), from != nullptr ? from + 8 * chunk : memory, from != nullptr ? 16 : 0);
  }
}

}  // namespace weft::tile
