// A matrix of weights on a card: quantised as in its file, in planes that kernels read without gaps
// (ops/cuda/kernels/weights.h).
//
//   const CardMatrix matrix = load_matrix(card, sources, team);   // rows of all sources, one after the other
#pragma once

#include <span>
#include <vector>

#include "device/cuda/card.h"
#include "ops/cuda/kernels/args.h"
#include "ops/weight_source.h"
#include "weft/device.h"

namespace weft::ops {

struct CardMatrix {
  // Of neighbouring sources of one type.
  struct TypedRows {
    WeightType type = WeightType::f32;
    int64_t first_row = 0, rows = 0;
    WeightPlanes planes = {};
  };
  int64_t rows = 0, cols = 0;
  std::vector<TypedRows> typed_rows;
  Workspace memory;
};

// Reads and packs with the team. Throws Error(out_of_memory), Error(invalid_shape) for sources of several widths, and
// what reading throws.
CardMatrix load_matrix(cuda::Card& card, std::span<const WeightSource> sources, WorkerTeam& team);

// For the host's eyes: what lies in the planes of one row, and how large that is.
struct PlaneBytes {
  int64_t quants = 0, high = 0, scales = 0, supers = 0;
};
PlaneBytes plane_bytes(WeightType type, int64_t cols);  // of a row
int64_t file_row_bytes(WeightType type, int64_t cols);
struct PlanesOfRow {
  char *quants, *high, *scales, *supers;
};
void pack_row(WeightType type, const char* file_row, int64_t cols, const PlanesOfRow& to);

}  // namespace weft::ops
