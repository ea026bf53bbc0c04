// Arguments of a kernel that runs a whole step, and how its shared memory is cut, for host and kernel alike.
#pragma once

#include "decode/fused/cuda/kernels/attention_args.h"
#include "decode/fused/cuda/kernels/stuck.h"
#include "ops/cuda/kernels/args.h"
#include "tile/abi/matvec.h"

namespace weft::decode::fused {

inline constexpr int kConsumerWarps = 8;  // that multiply; one more copies

// What decides the size of a kernel's shared memory.
struct ModelSizes {
  int rows = 1;                           // of a step, at most
  int x_cols = 0;                         // columns of x that a worker multiplies at once, at most
  int half_parts = 0, round_entries = 0;  // of partial sums: tile/abi/matvec.h
  int slots = 0;                          // of tables of first slots
  int squares = 0;                        // of a row: row_squares / 2
  int owned = 0;                          // columns of the residual that a worker has, at most
  int kept_sums = 0;                      // and of sums that it keeps for a norm of them
  int ring_bytes = 0, ring_entries = 0;   // tile/cuda/ring.h
  int head_dim = 0, heads = 0;            // of attention, and of a round (CardRound)
  int qkv_panels = 1, kinds = 1;          // kinds: of layers, by what they see
};

// How a matrix lies in tiles: those of a band within a panel, and of an entry of the ring.
struct MatrixTiles {
  tile::Divisor band_tiles, entry_tiles;
  int tile_cols;
};
// What a worker multiplies of it: tiles [begin, end) of a panel's line.
constexpr tile::MatvecShare share_of(const ModelSizes& sizes, const MatrixTiles& tiles, int begin, int end) {
  return {.begin = begin,
          .end = end,
          .band_tiles = tiles.band_tiles,
          .tile_cols = tiles.tile_cols,
          .entry_tiles = tiles.entry_tiles,
          .round_entries = sizes.round_entries,
          .rows = sizes.rows,
          .half_parts = sizes.half_parts};
}

// States of which a warp that merges begins with as many at once.
inline constexpr int kNear = 16;
// Warps that share a cell's states. The same for all steps: a row's bits follow from it.
inline constexpr int kMergeShares = 8;
// What a worker's warps begin attention and its merge with, of a kind of layers: the step's tables are a trip to memory
// away in every layer, and each of these one behind the other. Slots follow: [heads, panels, head_dim / 16 + 1].
struct NearTables {
  CardItem items[kConsumerWarps];
  CardHead heads[kConsumerWarps];
  int states[kConsumerWarps][kNear];  // by warps: of a share of a list
  struct List {
    int begin, count;
  } lists[kConsumerWarps];
  int num_items, num_heads, num_rounds, padding;  // items and heads: of the first round
};
static_assert(sizeof(NearTables) % 16 == 0);
constexpr int near_slots(const ModelSizes& sizes) { return sizes.qkv_panels * (sizes.head_dim / 16 + 1); }
constexpr int near_bytes(const ModelSizes& sizes) {
  return static_cast<int>(sizeof(NearTables)) + kConsumerWarps * near_slots(sizes) * 4;
}
// Of shared memory, that a row of a cell is merged in: [shares, 8] of 16 bytes.
inline constexpr int kMergedCellBytes = kMergeShares * 8 * 16;

// What owners leave for all, in cells of 8 bytes: of so many columns, pairs of neighbours in bf16 and squares of 16.
// Cells of 16 columns are whole, and there is an even number of squares.
constexpr int cells_of(int cols) { return (cols + 15) / 16; }
constexpr int row_pairs(int cols) { return 8 * cells_of(cols); }
constexpr int row_squares(int cols) { return (cells_of(cols) + 1) / 2 * 2; }

// From the begin of a CTA's shared memory on, in bytes; the ring lies first.
struct SharedLayout {
  int parts, x, heads, near, squares, factors, residual, sums, slots, stopped, bytes;
  int merged_cells;  // that `parts` hold, with all rows
  int ldx;           // elements of a row of x: 8 rows lie in different banks
  constexpr explicit SharedLayout(const ModelSizes& sizes)
      : parts((sizes.ring_bytes + sizes.ring_entries * 28 + 4 + 15) / 16 * 16),
        x(parts + larger(2 * sizes.half_parts * sizes.rows * 64, sizes.rows * kMergedCellBytes)),
        heads(x + 2 * ((sizes.x_cols + 63) / 64 * 64 + 16) * sizes.rows),
        near(heads + sizes.heads * entry_row_bytes(sizes.head_dim)),
        squares(near + sizes.kinds * near_bytes(sizes)),
        factors(squares + 4 * sizes.squares * sizes.rows),
        residual((factors + 4 * sizes.rows + 15) / 16 * 16),
        sums(residual + 4 * sizes.owned * sizes.rows),
        slots(sums + 4 * sizes.kept_sums * sizes.rows),
        stopped((slots + 2 * sizes.slots + 3) / 4 * 4),
        bytes(stopped + 8),
        merged_cells((x - parts) / (sizes.rows * kMergedCellBytes)),
        ldx((sizes.x_cols + 63) / 64 * 64 + 16) {}

 private:
  static constexpr int larger(int a, int b) { return a > b ? a : b; }
};

// A matrix's partition (partition.h), in global memory.
struct MatrixTables {
  const int* borders;      // [workers + 1]: tiles of the line
  const int* worker_slot;  // [workers]: of the worker's first tile
  const int* first_slot;   // [panels * bands + 1], all matrices' one behind the other
};

inline constexpr int kMostMatrices = 5;  // of a layer, and the head
inline constexpr int kMostKinds = 2;     // of layers: those that see everything, and those that slide

// What a step brings for layers that see as many tokens.
struct KindTables {
  const CardItem* items;             // by workers
  const int* worker_indptr;          // [workers + 1]
  const CardHead* heads;             // by rounds
  const CardRound* rounds;           // by workers
  const int* round_indptr;           // [workers + 1]
  const int *state_indptr, *states;  // MergeArgs
  const float *cos, *sin;            // [rows, pairs]
  int window, pairs;
};

// When a worker began a phase, had made its input, had multiplied, and had left what others read.
enum Stamp { kBegun, kReady, kMultiplied, kLeft, kNumStamps };

struct ModelArgs {
  // The model, which launches share.
  MatrixTables matrices[kMostMatrices] = {};  // by Matrix::kIndex
  const unsigned char* weights = nullptr;     // all matrices,
  const long long* offsets = nullptr;         // those of layers from here on: [layers, 4],
  long long embedding = 0, head = 0;          // and these
  const float* vectors = nullptr;             // of layers: [layers, Shape::kVectors]
  const float* output_norm = nullptr;
  unsigned long long* cells = nullptr;               // what workers hand on, from Shape's offsets on
  ops::CardCache keys = {}, values = {};             // of the first layer
  long long keys_of_layer = 0, values_of_layer = 0;  // elements from one layer to the next

  // The step.
  int rows = 0;                 // no more than the kernel's
  const int* tokens = nullptr;  // [rows]
  KindTables kinds[kMostKinds] = {};
  const int* pages = nullptr;  // of its requests, one behind the other
  int page_size = 0;
  float* logits = nullptr;   // [rows, vocabulary]
  int* ids = nullptr;        // [rows]: of the greatest of them, and of equals the least; -1: none; null: not wanted
  bool wants_logits = true;  // false: ends where the last layer has appended
  unsigned first_phase = 0;  // phases of launches before

  unsigned long long* stuck = nullptr;    // [workers], 0; of the host
  unsigned long long* trace = nullptr;    // [workers, phases, Stamp]: nanoseconds; of kernels that leave times
  unsigned long long limit_ns = 0;        // that a wait may take; 0: forever
  bool holds_back = false;                // of a study: nothing of a phase is copied before its input is there
  int ahead_bytes = 0, beside_bytes = 0;  // in flight: tile/cuda/ring.h
};

}  // namespace weft::decode::fused
