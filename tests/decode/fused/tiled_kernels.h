// Products from tiles in memory, without a ring: by one CTA.
#pragma once

#include "tests/decode/fused/tiled_args.h"
#include "tile/cuda/quantised_tiles.h"

namespace weft::testing {

template <class Weights, int kRows>
WEFT_INLINE void multiply_tiles(const TiledArgs& args) {
  const tile::MatvecShare& share = args.share;
  float* const parts = reinterpret_cast<float*>(ptx::shared_memory());
  const int warps = ptx::num_threads() / 32;
  int entry = ptx::warp();
  for (int round = 0; round < share.num_rounds(); ++round) {
    for (; entry < share.end_entry(round); entry += warps)
      tile::multiply_entry<Weights, kRows>(share, round, entry,
                                           args.tiles + entry * share.entry_tiles * args.tile_bytes,
                                           reinterpret_cast<const bf16*>(args.x), args.ldx, parts);
    ptx::cta_sync();
    tile::finish_round(share, round, ptx::thread_index(), ptx::num_threads(), parts,
                       [&](int band, int cell, float sum) { args.y[band * share.rows * 16 + cell] = sum; });
  }
}

template <class Weights>
WEFT_INLINE void read_rows(const TiledRowsArgs& args) {
  for (int i = ptx::thread_index(); i < 16 * args.cols / 4; i += ptx::num_threads()) {
    const int row = i / (args.cols / 4), column = i % (args.cols / 4) * 4;
    float values[4];
    tile::row_values<Weights>(args.tiles + column / Weights::kCols * Weights::kBytes, row, column, values);
    for (int j = 0; j < 4; ++j) args.y[row * args.cols + column + j] = values[j];
  }
}

}  // namespace weft::testing

#define WEFT_TILED_KERNEL(weights, rows)                                                             \
  WEFT_KERNEL(128, 1) void weft_tiled_##weights##_##rows(WEFT_PARAM weft::testing::TiledArgs args) { \
    weft::testing::multiply_tiles<weft::tile::weights, rows>(args);                                  \
  }
#define WEFT_TILED_ROWS_KERNEL(weights)                                                              \
  WEFT_KERNEL(128, 1) void weft_tiled_rows_##weights(WEFT_PARAM weft::testing::TiledRowsArgs args) { \
    weft::testing::read_rows<weft::tile::weights>(args);                                             \
  }
