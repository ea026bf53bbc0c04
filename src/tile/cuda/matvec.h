// A matrix times 1 to 8 rows of x, by a group of warps that take its bf16 weights from a ring: the matrix is the large
// operand of products of warps, x the small one, so each row of x is a column of its own and has the same bits whatever
// stands beside it.
//
// Weights are one line of fragments, each 16 rows by 16 columns in 512 bytes, band by band of 16 rows:
//
//   band 0   | 0 | 1 | 2 | 3 |      lane 4 g + t has 16 bytes of a fragment, columns 4t to 4t + 3 of rows g and g + 8:
//   band 1   | 4 | 5 | 6 | 7 |      (g, 4t) (g, 4t+1) | (g+8, 4t) (g+8, 4t+1) | (g, 4t+2) ... | (g+8, 4t+2) ...
//
// A product adds up its k in any order, so columns 4t to 4t + 3 stand where ptx/mma.h has 2t, 2t+1, 2t+8 and 2t+9:
// what a lane needs of x lies side by side.
//
// A worker has fragments [begin, end) of the line, in entries of so many each. An entry leaves a partial sum for each
// of its bands; they are added in the line's order, whoever made them.
//
//   multiply_entry(share, entry, data, x, ldx, parts);      // a warp, for each of its entries
//   finish_bands(share, thread, threads, parts, [&](int band, int cell, float sum) { ... });   // behind a barrier
#pragma once

#include "tile/cuda/edge.h"
#include "tile/cuda/element.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/mma.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::tile {

#if WEFT_SM >= 80
inline constexpr int kFragmentBytes = 512;

struct MatvecShare {
  int begin, end;       // fragments of the line
  int band_fragments;   // columns / 16
  int entry_fragments;  // of every entry but the last
  int rows;             // of x

  WEFT_INLINE int num_entries() const { return (end - begin + entry_fragments - 1) / entry_fragments; }
  WEFT_INLINE int first_band() const { return begin / band_fragments; }
  WEFT_INLINE int num_bands() const { return end > begin ? (end - 1) / band_fragments - first_band() + 1 : 0; }
  WEFT_INLINE int fragments_of(int entry) const {
    const int left = end - begin - entry * entry_fragments;
    return left < entry_fragments ? left : entry_fragments;
  }
  // Sums are [parts, rows, 16]. Along the line either the entry or the band grows, so no two have one place.
  WEFT_INLINE int part(int entry, int band_of_share) const { return (entry + band_of_share) * rows * 16; }
};

// `count` fragments that follow each other. x: of the lane's row; others have none.
template <int count>
WEFT_INLINE void multiply_fragments(const Bytes16* weights, const bf16* x, bool has_x, float (&sums)[2][4]) {
  Bytes16 a[count];
  Bytes8 b[count];
  WEFT_UNROLL
  for (int i = 0; i < count; ++i) a[i] = weights[32 * i];
  WEFT_UNROLL
  for (int i = 0; i < count; ++i) b[i] = has_x ? *reinterpret_cast<const Bytes8*>(x + 16 * i) : Bytes8{};
  WEFT_UNROLL
  for (int i = 0; i < count; ++i) ptx::mma_m16n8k16_bf16(sums[i % 2], a[i].word, b[i].word[0], b[i].word[1]);
}

// By a warp: its partial sums. x: [rows, columns] in shared memory, row stride ldx, of which ldx % 64 == 16 lets 8 rows
// lie in different banks.
WEFT_INLINE void multiply_entry(const MatvecShare& share, int entry, const u8* data, const bf16* x, int ldx,
                                float* parts) {
  const int lane = ptx::lane(), row = lane / 4, place = lane % 4;
  const bool has_x = row < share.rows;
  const Bytes16* const weights = reinterpret_cast<const Bytes16*>(data) + lane;
  const bf16* const own = x + (has_x ? row * ldx : 0) + 4 * place;
  const int first = share.begin + entry * share.entry_fragments, count = share.fragments_of(entry);
  int band = first / share.band_fragments, column = first % share.band_fragments;  // the latter: of fragments
  for (int i = 0; i < count; ++band, column = 0) {
    const int left = share.band_fragments - column, until = count - i < left ? count : i + left;
    float sums[2][4] = {};
    WEFT_NO_UNROLL
    for (; i + 8 <= until; i += 8, column += 8) multiply_fragments<8>(weights + 32 * i, own + 16 * column, has_x, sums);
    WEFT_NO_UNROLL
    for (; i < until; ++i, ++column) multiply_fragments<1>(weights + 32 * i, own + 16 * column, has_x, sums);
    float* const to = parts + share.part(entry, band - share.first_band()) + row;
    WEFT_UNROLL
    for (int j = 0; j < 2; ++j) {  // of x the row 2 place + j
      if (2 * place + j >= share.rows) break;
      to[(2 * place + j) * 16] = sums[0][j] + sums[1][j];
      to[(2 * place + j) * 16 + 8] = sums[0][j + 2] + sums[1][j + 2];
    }
  }
}

// By a group of threads: write(band of the share, row * 16 + output of the band, sum).
template <class Write>
WEFT_INLINE void finish_bands(const MatvecShare& share, int thread, int threads, const float* parts,
                              const Write& write) {
  const int of_band = share.rows * 16;
  for (int i = thread; i < share.num_bands() * of_band; i += threads) {
    const int band = i / of_band, cell = i % of_band;
    const int line = (share.first_band() + band) * share.band_fragments - share.begin;  // where the band begins
    const int from = line > 0 ? line : 0, end = line + share.band_fragments, size = share.end - share.begin;
    const int to = end < size ? end : size;
    float sum = 0;
    for (int entry = from / share.entry_fragments; entry * share.entry_fragments < to; ++entry)
      sum += parts[share.part(entry, band) + cell];
    write(band, cell, sum);
  }
}
#endif

}  // namespace weft::tile
