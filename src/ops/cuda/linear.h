// Products with a card's matrices, for a few rows at a time: weights are read once for up to 8 rows.
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
  bool add = false;  // to y
  // The first half of the matrix's rows goes through the gate and multiplies the other half. Needs can_gate.
  std::optional<Gate> gate = {};
};
// In the order of the stream, on the device that the matrix lies on.
void linear(const CardMatrix& matrix, const CardProduct& product, Stream stream);
// The kernels that products with the matrix launch: for one row, and for many.
std::vector<KernelText> linear_kernels(const CardMatrix& matrix, bool gated);
// Whether gate and what it multiplies are of one type.
inline bool can_gate(const CardMatrix& matrix) { return matrix.typed_rows.size() == 1 && matrix.rows % 2 == 0; }

// Rows `tokens` (on the card) of the matrix times `scale` to `to` [rows, cols].
void embed(const CardMatrix& matrix, const int* tokens, int64_t rows, float scale, float* to, Stream stream);

}  // namespace weft::ops
