// Products of few rows with a matrix in tiles: what linear.h does for those.
#pragma once

#include "ops/cuda/linear.h"

namespace weft::ops {

inline constexpr int kMostOfTiledLinear = 8;  // rows of x that share a read of the weights
int most_shared_of_tiles(Device device);      // bytes of shared memory that a CTA gets at most

// The kernel for so many rows of x at most, and what it is given.
struct TiledForm {
  TiledLinearForm kernel;
  int bands = 0;  // of outputs
  int sets = 0;   // of bands, which a CTA has at a time
  int chunk = 0, shared_bytes = 0;
};
// Warps, and with them the order of sums, follow from the matrix alone: a row has the same bits beside any others.
TiledForm tiled_form_of(const CardMatrix& matrix, const CardMatrix::TypedRows& typed, int64_t rows, bool gated,
                        bool exact);

// `aligned`: x, its rows and the norm's weights lie at 16 bytes.
void tiled_linear(const CardMatrix& matrix, const CardProduct& product, bool aligned, Stream stream);

}  // namespace weft::ops
