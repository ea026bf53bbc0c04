// A matrix times 1 to 8 rows of x, by a group of warps that take its weights from a ring: the matrix is the large
// operand of products of warps, x the small one, so each row of x is a column of its own and has the same bits whatever
// stands beside it.
//
// Weights are one line of tiles, 16 rows each, band by band of 16 rows (tile/abi/matvec.h). `Weights` says how their
// bytes lie: Bf16Tile here, others in quantised_tiles.h. It multiplies pieces of kCols columns in kBytes bytes; a tile
// is one of them or several that follow each other.
//
//   for (int round = 0; round < share.num_rounds(); ++round) {
//     for (each of the warp's entries before share.end_entry(round))
//       multiply_entry<Weights, kRows>(share, round, entry, data, x, ldx, parts);
//     sync();                                                                      // all threads that multiply
//     finish_round(share, round, thread, threads, parts, [&](int band, int cell, float sum) { ... });
//   }
//   sync();                                                                        // before parts are written again
//
// Numbers lie in fragments of 16 rows by 16 columns. Lane 4 g + t has columns 4t to 4t + 3 of rows g and g + 8:
//
//   (g, 4t) (g, 4t+1) | (g+8, 4t) (g+8, 4t+1) | (g, 4t+2) (g, 4t+3) | (g+8, 4t+2) (g+8, 4t+3)
//
// A product adds up its k in any order, so columns 4t to 4t + 3 stand where ptx/mma.h has 2t, 2t+1, 2t+8 and 2t+9:
// what a lane needs of x lies side by side.
#pragma once

#include "tile/abi/matvec.h"
#include "tile/cuda/edge.h"
#include "tile/cuda/element.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/mma.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::tile {

#if WEFT_SM >= 80
// A fragment in 512 bytes, 16 of each lane.
struct Bf16Tile {
  static constexpr int kCols = 16, kBytes = 512;

  struct Sums {
    float of[2][4] = {};
    WEFT_INLINE float operator[](int i) const { return of[0][i] + of[1][i]; }
  };
  // Adds the product of `count` pieces. x: of the lane's row and place.
  template <int kRows>
  WEFT_INLINE static void multiply(int lane, const u8* pieces, int count, const bf16* x, Sums& sums) {
    const Bytes16* const own = reinterpret_cast<const Bytes16*>(pieces) + lane;
    int i = 0;
    WEFT_NO_UNROLL
    for (; i + 8 <= count; i += 8) multiply_together<8, 2>(own + 32 * i, x + 16 * i, sums);
    WEFT_NO_UNROLL
    for (; i + 4 <= count; i += 4) multiply_together<4, 1>(own + 32 * i, x + 16 * i, sums);
    WEFT_NO_UNROLL
    for (; i < count; ++i) multiply_together<1, 1>(own + 32 * i, x + 16 * i, sums);
  }
  // The same in two halves, for who has pieces on their way: a lane's part of a piece, and the products of one of each
  // band with kTiles times 8 columns of x, each the sum of kTerms numbers. x(tile, term, fragment) gives the lane's 8
  // bytes of a fragment.
  struct Loaded {
    Bytes16 words;
  };
  WEFT_INLINE static Loaded load(int lane, const u8* piece) { return {reinterpret_cast<const Bytes16*>(piece)[lane]}; }
  template <int kTerms, int kBands, int kTiles, class X>
  WEFT_INLINE static void multiply_loaded(const Loaded (&pieces)[kBands], const X& x,
                                          float (&sums)[kBands][kTiles][4]) {
    WEFT_UNROLL
    for (int term = 0; term < kTerms; ++term) WEFT_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      const Bytes8 b = x(tile, term, 0);
      WEFT_UNROLL
      for (int band = 0; band < kBands; ++band)
        ptx::mma_m16n8k16_bf16(sums[band][tile], pieces[band].words.word, b.word[0], b.word[1]);
    }
  }
  // Columns `column` to column + 3, a multiple of 4, of row `row` of a piece.
  WEFT_INLINE static void read(const u8* piece, int row, int column, float (&to)[4]) {
    const u32* const words = reinterpret_cast<const u32*>(piece + 16 * (row % 8 * 4 + column / 4)) + row / 8;
    WEFT_UNROLL
    for (int i = 0; i < 2; ++i) {
      to[2 * i] = ptx::from_bits(words[2 * i] << 16);
      to[2 * i + 1] = ptx::from_bits(words[2 * i] & 0xffff0000u);
    }
  }

 private:
  // All loads before the first product; the products go to `chains` sums in turns.
  template <int count, int chains>
  WEFT_INLINE static void multiply_together(const Bytes16* weights, const bf16* x, Sums& sums) {
    Bytes16 a[count];
    Bytes8 b[count];
    WEFT_UNROLL
    for (int i = 0; i < count; ++i) a[i] = weights[32 * i];
    WEFT_UNROLL
    for (int i = 0; i < count; ++i) b[i] = *reinterpret_cast<const Bytes8*>(x + 16 * i);
    WEFT_UNROLL
    for (int i = 0; i < count; ++i) ptx::mma_m16n8k16_bf16(sums.of[i % chains], a[i].word, b[i].word[0], b[i].word[1]);
  }
};

// By a warp: the partial sums of its entry of the round, whose tiles begin at `data`, 16-byte aligned. x: of at most
// kRows rows the columns of a band, in shared memory, row stride ldx, of which ldx % 64 == 16 lets 8 rows lie in
// different banks; columns that only fill up the last tile hold finite numbers.
template <class Weights, int kRows>
WEFT_INLINE void multiply_entry(const MatvecShare& share, int round, int entry, const u8* data, const bf16* x, int ldx,
                                float* parts) {
  static_assert(kRows >= 1 && kRows <= 8);
  const int lane = ptx::opaque(ptx::lane()), row = lane / 4, place = lane % 4;
  // Lanes without a row take the first one: what they make is a column that nobody reads.
  const bf16* const own = x + (kRows > 1 && row < share.rows ? row * ldx : 0) + 4 * place;
  const int of_tile = share.tile_cols / Weights::kCols, of_band = share.band_tiles * of_tile;  // pieces
  const int first = share.begin + entry * share.entry_tiles, band = first / share.band_tiles;
  int piece = (first - band * share.band_tiles) * of_tile;  // of the band
  float* to = parts + share.part(round, entry, band) + row;
  for (int left = share.tiles_of(entry) * of_tile; left > 0; piece = 0, to += share.rows * 16) {
    const int count = left < of_band - piece ? left : of_band - piece;
    typename Weights::Sums sums;
    Weights::template multiply<kRows>(lane, data, count, own + piece * Weights::kCols, sums);
    data += count * Weights::kBytes;
    left -= count;
    WEFT_UNROLL
    for (int j = 0; j < (kRows > 1 ? 2 : 1); ++j) {  // of x the row 2 place + j
      if (2 * place + j >= share.rows) break;
      to[(2 * place + j) * 16] = sums[j];
      to[(2 * place + j) * 16 + 8] = sums[j + 2];
    }
  }
}

// By a group of threads, behind a barrier with all that multiplied the round's entries: write(band of the share,
// row * 16 + output of the band, sum) for bands that have ended. Partial sums of the round after next may be written
// behind another barrier.
template <class Write>
WEFT_INLINE void finish_round(const MatvecShare& share, int round, int thread, int threads, float* parts,
                              const Write& write) {
  const int of_band = share.rows * 16, size = share.size();
  const int begin = share.first_tile(round), after = share.first_tile(round + 1), end = after < size ? after : size;
  const int first_band = share.first_band(round), bands = (share.begin + end - 1) / share.band_tiles - first_band + 1;
  for (int i = thread; i < bands * of_band; i += threads) {
    const int band = first_band + i / of_band, cell = i % of_band;
    const int line = band * share.band_tiles - share.begin;  // where the band begins
    const int from = line > begin ? line : begin, until = line + share.band_tiles, to = until < end ? until : end;
    float sum = line < begin && begin > 0 ? parts[share.carried(round) + cell] : 0.f;
    for (int entry = from / share.entry_tiles; entry * share.entry_tiles < to; ++entry)
      sum += parts[share.part(round, entry, band) + cell];
    if (until > end && end < size)
      parts[share.carried(round + 1) + cell] = sum;
    else
      write(band - share.first_band(), cell, sum);
  }
}

// A row of weights as floats, a few of them: columns `column` to column + 3, a multiple of 4, of row `row` of a band.
// `piece`: the one that holds the column.
template <class Weights>
WEFT_INLINE void row_values(const u8* piece, int row, int column, float (&to)[4]) {
  Weights::read(piece, row, column % Weights::kCols, to);
}
#endif

}  // namespace weft::tile
