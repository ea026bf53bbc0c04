// Tiles of 16-bit elements in shared memory whose 16-byte chunks are permuted within each row, so that ldmatrix reads
// eight rows at one column, and a warp writes whole rows, without two of them in one bank.
//
//   const SharedTile<128> k{shared};             // rows of 128 elements
//   cp_async_16(k.chunk(row, 3), source);        // elements 24 to 31 of the row
#pragma once

#include "tile/cuda/element.h"

namespace weft::tile {

// kColumns: a multiple of 8.
template <int kColumns>
struct SharedTile {
  static_assert(kColumns % 8 == 0, "rows are made of 16-byte chunks");
  static constexpr int kChunks = kColumns / 8;
  // Chunk c of row r begins at bank group (r * kChunks + c) % 8. With p the largest power of two in kChunks (at most
  // 8), rows that are 8 / p apart share theirs: these differ in the bits that r / (8 / p) % p flips, which stay within
  // the row.
  static constexpr int kPower = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : kChunks % 2 == 0 ? 2 : 1;
  static constexpr int kRowBytes = kColumns * 2;  // from a row to the next; of eight rows any two differ in their order
  static constexpr int bytes(int rows) { return rows * kRowBytes; }

  u8* data;  // 16-byte aligned
  WEFT_INLINE u8* chunk(int row, int c) const {
    const u32 r = static_cast<u32>(row), mixed = static_cast<u32>(c) ^ (r / (8 / kPower) % kPower);
    return data + (r * kChunks + mixed) * 16;
  }
};

}  // namespace weft::tile
