// y = x W^T for many rows of x and weights in tiles (tile/cuda/matvec.h). x is a sum of numbers in bf16 before
// (WEFT_SPLIT), so that a CTA copies its rows to shared memory as they are; weights come to the registers of warps in
// the order in which these multiply.
//
//   CTA    8 bands (128 outputs) x 64 rows of x, chunk of columns by chunk
//   warp   2 bands x 32 rows: what is read of x serves both
//
// Few rows of a small matrix make too few CTAs for a card: then columns are cut into splits too, whose sums are added
// up behind (WEFT_SUM_SPLITS), in their order.
//
// The generated text instantiates them: WEFT_TILED_MANY(symbol, weights, parts of x, CTAs of a
// multiprocessor), WEFT_SPLIT(symbol, parts of x)
// and WEFT_SUM_SPLITS(symbol).
#pragma once

#include "ops/cuda/kernels/tiled_linear.h"
#include "tile/cuda/ptx/cp_async.h"

namespace weft::ops {

#if WEFT_SM >= 80
inline constexpr int kManyRows = 64, kManyBands = 8, kManyThreads = 256;

template <class Weights, int kParts>
struct TiledMany {
  static constexpr int kChunk = Weights::kCols < 64 ? 64 : Weights::kCols;  // columns
  static constexpr int kPieces = kChunk / Weights::kCols, kStages = kChunk * kParts > 192 ? 2 : 3;
  static constexpr int kStride = kChunk + 16;
  static constexpr int kBands = 2, kTiles = 4;  // of a warp, the latter 8 rows of x each
  struct Shared {
    bf16 x[kStages][kParts][kManyRows][kStride];
  };
  struct Pieces {
    typename Weights::Loaded of[kPieces][kBands];
  };
  using Sums = float[kBands][kTiles][4];

  WEFT_INLINE static void run(const TiledManyArgs& args) {
    Shared& shared = *reinterpret_cast<Shared*>(ptx::shared_memory());
    WEFT_NO_UNROLL
    for (int work = ptx::cta_index(); work < args.works; work += ptx::num_ctas()) multiply_work(args, work, shared);
    ptx::wait_for_previous_kernel();  // without work, too: who waits for this kernel waits for those before it
  }

 private:
  WEFT_INLINE static void multiply_work(const TiledManyArgs& args, int work, Shared& shared) {
    const Place place(args, work);
    Pieces next;
    load(args, place, place.begin, next);  // no kernel before this one writes them
    ptx::wait_for_previous_kernel();
    ptx::allow_next_kernel();
    ptx::cta_sync();  // all have read what is copied over
    WEFT_UNROLL
    for (int s = 0; s < kStages - 1; ++s) copy(args, place, place.begin + s, shared.x[s]);
    Sums sums = {};
    int stage = 0, free = kStages - 1;
    WEFT_NO_UNROLL
    for (int chunk = place.begin; chunk < place.end; ++chunk) {
      ptx::cp_async_wait<kStages - 2>();
      ptx::cta_sync();  // all have read what is copied over now
      copy(args, place, chunk + kStages - 1, shared.x[free]);
      const Pieces now = next;
      load(args, place, chunk + 1, next);
      multiply(now, shared.x[stage], sums);
      stage = stage + 1 == kStages ? 0 : stage + 1;
      free = free + 1 == kStages ? 0 : free + 1;
    }
    ptx::cp_async_wait<0>();
    leave(args, place, sums);
  }

  // Of the product: some bands, rows and columns.
  struct Place {
    int band, begin, end, split;  // chunks of columns
    i64 row;
    WEFT_INLINE Place(const TiledManyArgs& args, int work) {
      const int of_weights = work / args.row_blocks;  // neighbours have the same weights
      row = static_cast<i64>(work - of_weights * args.row_blocks) * kManyRows;
      const int block = of_weights / args.splits;
      split = of_weights - block * args.splits;
      band = block * kManyBands + ptx::warp() / 2 * kBands;
      begin = args.chunks * split / args.splits;
      end = args.chunks * (split + 1) / args.splits;
    }
  };
  WEFT_INLINE static int first_row_of_warp() { return ptx::warp() % 2 * 8 * kTiles; }

  // Bands beyond the last are the last one again.
  WEFT_INLINE static void load(const TiledManyArgs& args, const Place& place, int chunk, Pieces& to) {
    if (chunk >= place.end) return;
    const int lane = ptx::lane();
    WEFT_UNROLL
    for (int b = 0; b < kBands; ++b) {
      const int band = place.band + b < args.bands ? place.band + b : args.bands - 1;
      const u8* const pieces = piece_of<Weights>(args.w, band, chunk * kPieces);
      WEFT_UNROLL
      for (int p = 0; p < kPieces; ++p) to.of[p][b] = Weights::load(lane, pieces + p * Weights::kBytes);
    }
  }

  // A chunk of the CTA's rows of x; rows beyond the last are zeros.
  WEFT_INLINE static void copy(const TiledManyArgs& args, const Place& place, int chunk,
                               bf16 (&to)[kParts][kManyRows][kStride]) {
    constexpr int kOfRow = kChunk / 8;  // copies of 16 bytes
    if (chunk < place.end) {
      WEFT_UNROLL
      for (int i = 0; i < kParts * kManyRows * kOfRow / kManyThreads; ++i) {
        const int at = ptx::thread_index() + i * kManyThreads, part = at / (kManyRows * kOfRow);
        const int row = at / kOfRow % kManyRows, column = at % kOfRow * 8;
        const bool is_there = place.row + row < args.rows;
        const unsigned short* const from =
            args.x + (part * args.rows + (is_there ? place.row + row : 0)) * args.ld + chunk * kChunk + column;
        ptx::cp_async_16(&to[part][row][column], from, is_there ? 16 : 0);
      }
    }
    ptx::cp_async_commit();
  }

  WEFT_INLINE static void multiply(const Pieces& pieces, const bf16 (&x)[kParts][kManyRows][kStride], Sums& sums) {
    const bf16* const own = &x[0][first_row_of_warp() + ptx::lane() / 4][ptx::lane() % 4 * 4];
    WEFT_UNROLL
    for (int p = 0; p < kPieces; ++p)
      Weights::template multiply_loaded<kParts>(
          pieces.of[p],
          [&](int tile, int part, int fragment) {
            return *reinterpret_cast<const tile::Bytes8*>(own + (part * kManyRows + 8 * tile) * kStride +
                                                          p * Weights::kCols + 16 * fragment);
          },
          sums);
  }

  WEFT_INLINE static void leave(const TiledManyArgs& args, const Place& place, const Sums& sums) {
    const int g = ptx::lane() / 4;
    WEFT_UNROLL
    for (int b = 0; b < kBands; ++b) WEFT_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) WEFT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const i64 row = place.row + first_row_of_warp() + 8 * tile + ptx::lane() % 4 * 2 + i % 2;
      const i64 output = static_cast<i64>(place.band + b) * 16 + g + i / 2 * 8;
      if (row >= args.rows || output >= args.outputs) continue;
      if (args.sums != nullptr) {
        args.sums[(place.split * args.rows + row) * args.outputs + output] = sums[b][tile][i];
      } else {
        float& y = args.y[row * args.ldy + output];
        y = args.add ? y + sums[b][tile][i] : sums[b][tile][i];
      }
    }
  }
};

// A row is a warp's.
template <int kParts>
WEFT_INLINE void split_rows(const SplitArgs& args) {
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  const i64 warps = static_cast<i64>(ptx::num_ctas()) * (kManyThreads / 32);
  for (i64 row = static_cast<i64>(ptx::cta_index()) * (kManyThreads / 32) + ptx::warp(); row < args.rows;
       row += warps) {
    const float* const x = args.x + row * args.ldx;
    const NormFactors factors =
        args.norm != nullptr ? norm_factors(args.cols, args.eps, [&](int i) { return x[i]; }) : NormFactors{1.f, 1.f};
    for (int i = ptx::lane(); i < args.ld; i += 32) {
      float rest = i < args.cols ? x[i] : 0.f;
      if (args.norm != nullptr && i < args.cols) rest = rest * factors.before * factors.after * args.norm[i];
      WEFT_UNROLL
      for (int part = 0; part < kParts; ++part) {
        const u32 number = tile::pack<bf16>(rest, 0.f);
        args.to[(part * args.rows + row) * args.ld + i] = static_cast<u16>(number);
        rest = rest_of(rest, number << 16);
      }
    }
  }
}

WEFT_INLINE void sum_splits(const SumSplitsArgs& args) {
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  const i64 all = args.rows * args.outputs, threads = static_cast<i64>(ptx::num_ctas()) * kManyThreads;
  for (i64 i = static_cast<i64>(ptx::cta_index()) * kManyThreads + ptx::thread_index(); i < all; i += threads) {
    float sum = args.sums[i];
    for (int split = 1; split < args.splits; ++split) sum += args.sums[split * all + i];
    float& y = args.y[i / args.outputs * args.ldy + i % args.outputs];
    y = args.add ? y + sum : sum;
  }
}
#endif

}  // namespace weft::ops

#define WEFT_TILED_MANY(symbol, weights, parts, ctas)                            \
  WEFT_KERNEL(256, ctas) void symbol(WEFT_PARAM weft::ops::TiledManyArgs args) { \
    weft::ops::TiledMany<weft::tile::weights, parts>::run(args);                 \
  }
#define WEFT_SPLIT(symbol, parts) \
  WEFT_KERNEL(256, 1) void symbol(WEFT_PARAM weft::ops::SplitArgs args) { weft::ops::split_rows<parts>(args); }
#define WEFT_SUM_SPLITS(symbol) \
  WEFT_KERNEL(256, 1) void symbol(WEFT_PARAM weft::ops::SumSplitsArgs args) { weft::ops::sum_splits(args); }
