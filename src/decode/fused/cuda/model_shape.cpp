#include "decode/fused/cuda/model_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace weft::decode::fused {
namespace {

// The first one of that role; null: there is none, in a stack of one part of layers.
const MatrixPartition* find_matrix(const Partition& partition, WeightRole role) {
  const auto found =
      std::ranges::find_if(partition.matrices, [&](const MatrixPartition& matrix) { return matrix.role == role; });
  return found == partition.matrices.end() ? nullptr : &*found;
}

// Layers may differ in what attention sees, and in nothing else.
void check_alike(const Partition& partition) {
  for (const MatrixPartition& matrix : partition.matrices) {
    if (matrix.layer < 0) continue;
    const MatrixPartition& first = partition.matrix_of(matrix.role, 0);
    const std::string what = fmt::format("layer {}: {}", matrix.layer, to_string(matrix.role));
    check(one_type_of(matrix.tiles, what) == one_type_of(first.tiles, what), ErrorCode::unsupported,
          "{}: required weights of {} where layer 0 has {}; supported are layers of the same types; missing: a kernel "
          "of several",
          what, weft::to_string(matrix.tiles.parts[0].type), weft::to_string(first.tiles.parts[0].type));
  }
}

// Columns of x that a worker multiplies at once, as far as tiles reach.
int64_t x_cols(const TiledMatrix& tiles) { return tiles.strip_tiles() * tiles.tile_cols; }

// Partial sums of a round of a worker's, at most.
int round_parts(const MatrixPartition& matrix, int worker, const ModelSizes& sizes) {
  const auto [begin, end] = matrix.tiles_of(worker);
  const int64_t panel_tiles = matrix.tiles.panel_tiles(), first = begin / panel_tiles * panel_tiles;
  const MatrixTiles tiles{.band_tiles = static_cast<int>(matrix.tiles.strip_tiles()),
                          .entry_tiles = static_cast<int>(matrix.entry_tiles()),
                          .tile_cols = static_cast<int>(matrix.tiles.tile_cols)};
  return share_of(sizes, tiles, static_cast<int>(begin - first), static_cast<int>(end - first)).round_parts();
}

// All but the ring, which gets what the others leave.
ModelShape shape_without_ring(const Partition& partition, int rows) {
  const Program& program = partition.program;
  check_alike(partition);
  ModelShape shape{.sizes = {.rows = rows}};
  int64_t most_cols = 0;
  for (const MatrixPartition& matrix : partition.matrices) most_cols = std::max(most_cols, x_cols(matrix.tiles));
  shape.sizes.x_cols = static_cast<int>(most_cols);

  int64_t at = 0;
  const auto hidden = static_cast<int>(program.cols_of(Buffer::residual));
  const auto take = [&](Shared shared, int64_t cells) {
    shape.cells[static_cast<size_t>(shared)] = at;
    at += cells * rows;
  };
  for (const Phase& phase : partition.phases.first_layer())
    if (phase.multiplies()) take(phase.writes, partition.num_cells(phase.writes, 0) * kBandRows);
  const MatrixPartition* const qkv = find_matrix(partition, WeightRole::qkv);
  if (qkv != nullptr) take(Shared::attended, row_pairs(static_cast<int>(program.cols_of(Buffer::attended))));
  take(Shared::squares, row_squares(hidden));
  take(Shared::normed, row_pairs(hidden) + row_squares(hidden));
  take(Shared::gated, row_pairs(static_cast<int>(program.cols_of(Buffer::gated))));
  shape.best = at;
  at += 2 * int64_t{partition.machine.workers} * rows;
  take(Shared::states, 0);

  shape.vectors.fill(-1);
  for (const Operation& operation : operations_of(program, 0))
    for (const Weight& weight : operation.weights)
      if (!is_matrix(weight.role)) {
        shape.vectors[static_cast<size_t>(weight.role)] = shape.vectors_of_layer;
        shape.vectors_of_layer += (weight.cols + 3) / 4 * 4;
      }

  shape.sizes.round_entries = std::max(kConsumerWarps, 64 / rows);
  for (const MatrixPartition& matrix : partition.matrices)
    for (int w = 0; w < partition.machine.workers; ++w)
      shape.sizes.half_parts = std::max(shape.sizes.half_parts, round_parts(matrix, w, shape.sizes));
  shape.sizes.squares = row_squares(hidden) / 2;
  for (int w = 0; w < partition.machine.workers; ++w) {
    const Range owned = partition.owned_cells(Shared::normed, w);
    shape.sizes.owned = std::max(shape.sizes.owned, static_cast<int>((owned.end - owned.begin) * kBandRows));
  }
  if (shape.vector_of(WeightRole::attn_post_norm) >= 0) shape.sizes.kept_sums = shape.sizes.owned;
  for (const MatrixPartition* matrix : kernel_matrices(partition)) {
    if (matrix->role == WeightRole::head) continue;
    shape.sizes.slots += static_cast<int>(matrix->first_slot.size());
    check(matrix->num_slots() <= 0xffff, ErrorCode::unsupported,
          "the fused step: required {} sums of {}; supported are up to {}; missing: wider tables of them",
          matrix->num_slots(), to_string(matrix->role), 0xffff);
  }
  shape.sizes.ring_entries = partition.machine.max_entries;
  shape.sizes.head_dim = program.head_dim;
  if (qkv != nullptr) {
    shape.sizes.heads = most_heads(rows, program.num_qo_heads / program.num_kv_heads);
    shape.sizes.qkv_panels = static_cast<int>(qkv->tiles.num_panels);
    shape.sizes.kinds = static_cast<int>(program.ropes.size());
  } else {
    shape.sizes.kinds = 0;
  }
  return shape;
}

// Bytes beside the ring, and of the ring at least: keys and values of an item, and an entry of weights.
struct RingRoom {
  int beside, least;
  int most() const { return kMostSharedBytes - beside; }
  bool is_enough() const { return most() >= least; }
};
RingRoom room_of(const Partition& partition, const ModelShape& shape) {
  int64_t entry = 0;
  for (const MatrixPartition& matrix : partition.matrices) entry = std::max(entry, matrix.entry_bytes);
  return {.beside = SharedLayout(shape.sizes).bytes,
          .least = item_entry_bytes(partition.machine.kv_chunk, partition.program.head_dim) + static_cast<int>(entry)};
}

// Of `rows` and fewer, the most whose kernel fits; 0: not even one row's does.
int rows_that_fit(const Partition& partition, int rows) {
  while (rows > 0 && !room_of(partition, shape_without_ring(partition, rows)).is_enough()) rows /= 2;
  return rows;
}

}  // namespace

WeightType one_type_of(const TiledMatrix& tiles, std::string_view what) {
  check(tiles.parts.size() == 1, ErrorCode::unsupported,
        "{}: required rows of {} types; supported is one type for all rows of a matrix; missing: a product of several",
        what, tiles.parts.size());
  return tiles.parts[0].type;
}

ModelShape shape_of(const Partition& partition, int rows, DType kv_dtype) {
  ModelShape shape = shape_without_ring(partition, rows);
  const RingRoom room = room_of(partition, shape);
  const int fit = room.is_enough() ? rows : rows_that_fit(partition, rows / 2);
  check(room.is_enough(), ErrorCode::unsupported,
        "the fused step of {} row{}: required {} bytes of shared memory beside a ring of {}; supported are {}; missing "
        "{}{}",
        rows, rows == 1 ? "" : "s", room.beside, room.least, kMostSharedBytes, room.least - room.most(),
        fit == 0 ? "" : fmt::format("; steps of up to {} row{} fit", fit, fit == 1 ? "" : "s"));
  shape.sizes.ring_bytes = std::min(static_cast<int>(partition.machine.ring_bytes), room.most() / 1024 * 1024);
  shape.kv_dtype = kv_dtype;
  return shape;
}

int most_rows(const Partition& partition) {
  const int rows = rows_that_fit(partition, kMostRows);
  return rows > 0 ? rows : shape_of(partition, 1, DType::bf16).sizes.rows;  // which says what is missing
}

std::vector<const MatrixPartition*> kernel_matrices(const Partition& partition) {
  std::vector<const MatrixPartition*> matrices;
  for (const WeightRole role : kMatrixRoles)
    if (const MatrixPartition* const matrix = find_matrix(partition, role)) matrices.push_back(matrix);
  return matrices;
}

}  // namespace weft::decode::fused
