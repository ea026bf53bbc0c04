// What fits in the kernel of a whole step, and where it lies: how much of a CTA's shared memory each part of it takes,
// and where what workers hand on begins.
//
//   const ModelShape shape = shape_of(partition, 2, DType::bf16);   // for steps of up to 2 rows
//   shape.sizes.ring_bytes;                                         // what the other parts leave
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "decode/fused/cuda/kernels/model_args.h"
#include "decode/fused/partition.h"
#include "weft/tensor.h"

namespace weft::decode::fused {

// What the text and the host agree on, of a kernel for steps of up to so many rows.
struct ModelShape {
  ModelSizes sizes = {};
  DType kv_dtype = DType::bf16;
  bool leaves_times = false;  // a kernel of its own: stamps take registers that a step has not
  // Where buffers begin among what workers hand on, in cells of 8 bytes; states come last. And where each worker leaves
  // its best logit of each row.
  std::array<int64_t, kNumShared> cells = {};
  int64_t best = 0;
  // Where vectors of a layer lie, in floats, by their role; -1: there is none. And all of a layer's.
  std::array<int64_t, static_cast<size_t>(WeightRole::output_norm) + 1> vectors = {};
  int64_t vectors_of_layer = 0;

  int64_t cells_of(Shared shared) const { return cells[static_cast<size_t>(shared)]; }
  int64_t vector_of(WeightRole role) const { return vectors[static_cast<size_t>(role)]; }
};

// rows: 1, 2, 4 or 8. Throws Error(unsupported), by name, for what the kernel does not have: layers whose types of
// weights differ, groups of more than 16 query heads, more shared memory than there is.
ModelShape shape_of(const Partition& partition, int rows, DType kv_dtype);

// Rows of a step, at most: of the largest kernel that fits in a CTA's shared memory. Throws what shape_of does for one
// row.
int most_rows(const Partition& partition);

// Numbers that a launch takes: of its phases, and of what stands behind the logits.
inline int phase_numbers(const Partition& partition) { return partition.phases.size() + 1; }

// The kernel's matrices by their roles, in the order of phases, which is that of ModelArgs::matrices.
inline constexpr WeightRole kMatrixRoles[] = {WeightRole::qkv, WeightRole::output, WeightRole::gate_up,
                                              WeightRole::down, WeightRole::head};
// Those that the layers have, and the head.
std::vector<const MatrixPartition*> kernel_matrices(const Partition& partition);

// The type of all rows. Throws Error(unsupported) for rows of several; `what` names the matrix.
WeightType one_type_of(const TiledMatrix& tiles, std::string_view what);

}  // namespace weft::decode::fused
