// Products of a kernel that runs a whole step: their weights through the ring, their sums to whoever reads them.
#pragma once

#include "decode/fused/cuda/kernels/worker.h"
#include "ops/cuda/kernels/gates.h"
#include "tile/cuda/matvec.h"
#include "tile/cuda/ptx/bulk_copy.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
// A matrix of the model and its partition, as the generated text says. Its line of tiles runs panel by panel, each a
// range of columns that workers of its own have. Weights: tile/cuda/matvec.h.
template <class Weights_, int index, int rows, int cols, int panels, int tile_cols, int entry_tiles, int pieces,
          long long cells, int first_slots>
struct Matrix {
  using Weights = Weights_;
  static constexpr int kIndex = index;  // of ModelArgs::matrices
  static constexpr int kRows = rows, kCols = cols, kPanels = panels;
  static constexpr int kTileCols = tile_cols, kTileBytes = tile_cols / Weights::kCols * Weights::kBytes;
  static constexpr int kBands = (rows + 15) / 16;
  static constexpr int kBandTiles = (cols + tile_cols - 1) / tile_cols / panels;  // of a panel
  static constexpr int kPanelCols = kBandTiles * tile_cols;  // of the last one some may not be there
  static constexpr int kPanelTiles = kBands * kBandTiles;
  static constexpr int kBandPieces = kBandTiles * tile_cols / Weights::kCols;  // of weights
  static constexpr MatrixTiles kTiles{.band_tiles = kBandTiles, .entry_tiles = entry_tiles, .tile_cols = tile_cols};
  static constexpr int kPieces = pieces;           // sums of a band within a panel, at most
  static constexpr i64 kCells = cells;             // where its sums begin in ModelArgs::cells
  static constexpr int kFirstSlots = first_slots;  // where its table begins among all of them
  static_assert((cols + tile_cols - 1) / tile_cols % panels == 0 && tile_cols % Weights::kCols == 0);
};

// A product of a layer: what one text for all of them asks of its matrix, and of what it multiplies. So a layer has the
// instructions of a product once, which is less to compile, and to fetch: a multiprocessor runs through all of a layer
// before it comes back to any of them.
struct Product {
  int matrix, offset;  // of ModelArgs::matrices, and among a layer's offsets
  int type;            // which of a layer's types of weights
  int tile_bytes;
  MatrixTiles tiles;
  tile::Divisor panel_tiles;
  i64 sums;  // where its sums begin in ModelArgs::cells

  // What it multiplies, in loads of 16 bytes (inputs.h): squares and columns of a panel; columns of a whole row.
  i64 from;
  bool is_normed;
  int squares, row_quads;
  tile::Divisor loads;

  // M's, by rows at `from`; is_normed: of the residual.
  template <class M>
  static constexpr Product of(int offset, int type, i64 from, bool is_normed) {
    const int squares = is_normed ? row_squares(M::kCols) / 2 : 0;
    return {.matrix = M::kIndex,
            .offset = offset,
            .type = type,
            .tile_bytes = M::kTileBytes,
            .tiles = M::kTiles,
            .panel_tiles = M::kPanelTiles,
            .sums = M::kCells,
            .from = from,
            .is_normed = is_normed,
            .squares = squares,
            .row_quads = row_pairs(M::kCols) / 2,
            .loads = squares + M::kPanelCols / 4};
  }
};

// What a worker has of it.
template <class Shape>
struct Share {
  int panel;
  tile::MatvecShare tiles;  // of the panel
  int first_slot;           // of the share's first band

  WEFT_INLINE Share(const Worker<Shape>& worker, const Product& of) {
    const MatrixTables& tables = worker.args.matrices[of.matrix];
    const int begin = tables.borders[worker.worker], end = tables.borders[worker.worker + 1];
    panel = begin < end ? begin / of.panel_tiles : 0;
    tiles = share_of(Shape::kSizes, of.tiles, begin - panel * of.panel_tiles, end - panel * of.panel_tiles);
    first_slot = tables.worker_slot[worker.worker];
  }
};

// The thread that copies: weights of all phases in their order, as the ring has room.
template <class Shape>
WEFT_INLINE bool copy_weights(const Worker<Shape>& worker, tile::RingProducer& producer, const Product& of, i64 offset,
                              int phase) {
  const Share<Shape> share(worker, of);
  const int first = share.panel * of.panel_tiles + share.tiles.begin;
  const u8* from = worker.args.weights + offset + static_cast<i64>(first) * of.tile_bytes;
  const ptx::CachePolicy policy = ptx::evict_first();
  for (int entry = 0; entry < share.tiles.num_entries(); ++entry) {
    const u32 bytes = static_cast<u32>(share.tiles.tiles_of(entry) * of.tile_bytes);
    if (!producer.acquire(bytes, static_cast<u32>(phase))) {
      worker.report(StuckAt::free_entry, phase);
      return false;
    }
    ptx::bulk_copy(producer.data(), from, bytes, producer.full(), policy);
    producer.advance();
    from += bytes;
  }
  return true;
}
#endif

}  // namespace weft::decode::fused
