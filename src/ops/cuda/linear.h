// Products with a card's matrices, for a few rows at a time: weights are read once for up to 8 rows, from planes in
// fp32, from tiles by products of warps.
#pragma once

#include <optional>

#include "ops/cuda/kernels.h"
#include "ops/cuda/weights.h"
#include "weft/device.h"

namespace weft::ops {

struct CardProduct {
  const float* x = nullptr;  // [rows, cols], row stride ldx
  int64_t rows = 0, ldx = 0;
  float* y = nullptr;  // [rows, the matrix's rows], of a gate half as many; row stride ldy
  int64_t ldy = 0;
  const float* norm = nullptr;  // rows of x are normed by it first
  float eps = 0.f;
  bool add = false;    // to y
  bool exact = false;  // every bit of x counts; else 17 do where weights lie in tiles
  // A row's bits are to be the same however many there are, which TiledManyRows makes of any number.
  bool invariant = false;
  // The first half of the matrix's rows goes through the gate and multiplies the other half. Needs can_gate.
  std::optional<Gate> gate = {};
};
// In the order of the stream, on the device that the matrix lies on.
void linear(const CardMatrix& matrix, const CardProduct& product, Stream stream);
// The kernels that products with the matrix launch: for one row, and for many.
std::vector<KernelText> linear_kernels(const CardMatrix& matrix, bool gated, bool exact);
// Whether gate and what it multiplies are of one type, and in tiles each a whole number of bands.
inline bool can_gate(const CardMatrix& matrix) {
  return matrix.typed_rows.size() == 1 && matrix.rows % (matrix.is_tiled() ? 2 * kBandRows : 2) == 0;
}

// Rows of one type of the matrix, from first_row of them on, become fp32 [rows, cols].
void widen(const CardMatrix& matrix, const CardMatrix::TypedRows& typed, int64_t first_row, int64_t rows, float* to,
           Stream stream);
KernelText widen_kernel(const CardMatrix& matrix, const CardMatrix::TypedRows& typed);  // embed's too

// Rows `tokens` (on the card) of the matrix times `scale` to `to` [rows, cols].
void embed(const CardMatrix& matrix, const int* tokens, int64_t rows, float scale, float* to, Stream stream);

}  // namespace weft::ops
