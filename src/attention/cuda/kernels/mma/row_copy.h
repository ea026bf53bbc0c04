// Rows to a tile in shared memory, by all threads of the CTA, behind their backs.
#pragma once

#include "tile/cuda/ptx/cp_async.h"
#include "tile/cuda/swizzle.h"

namespace weft::attention::cuda::mma {

// Which rows of a tile this thread copies 16 bytes of, and which: rows `first`, first + kTogether, ... Rows that are 8
// apart are permuted alike. kHalves: 16-bit elements of a row, whatever they hold.
template <int kThreads, int kHalves, class Tile>
struct RowCopy {
  static constexpr int kChunks = kHalves / 8, kTogether = kThreads / kChunks;
  template <int kTileRows>
  static constexpr int kCopies = (kTileRows + kTogether - 1) / kTogether;
  int chunk, first;
  ptx::SharedPlace place;

  WEFT_INLINE RowCopy(const Tile& to, int thread)
      : chunk(thread % kChunks), first(thread / kChunks), place(ptx::shared_place(to.chunk(first, chunk))) {}

  template <int kTileRows>
  WEFT_INLINE bool has(int i) const {
    return (kTileRows % kTogether == 0 && kThreads % kChunks == 0) ||
           (first < kTogether && first + i * kTogether < kTileRows);
  }
  WEFT_INLINE int row(int i) const { return first + i * kTogether; }
  // Of row(i), whose kBytes lie at `from`. What it has too few of for products is zeros.
  template <int kBytes>
  WEFT_INLINE void copy(const Tile& to, int i, const char* from) const {
    const ptx::SharedPlace there =
        kTogether % 8 == 0 ? place + i * kTogether * Tile::kRowBytes : ptx::shared_place(to.chunk(row(i), chunk));
    constexpr int kWhole = kBytes / 16, kRest = kBytes % 16;
    const int bytes = kWhole == kChunks || chunk < kWhole ? 16 : chunk == kWhole ? kRest : 0;
    ptx::cp_async_16(there, from + (bytes > 0 ? 16 * chunk : 0), bytes);
  }
};

}  // namespace weft::attention::cuda::mma
