// Products of many rows with a matrix in tiles, by products of warps: weights are read once for 64 rows, and from the
// second-level cache for more.
//
//   TiledManyRows many;
//   if (TiledManyRows::takes(matrix, product)) many.multiply(matrix, product, stream);
#pragma once

#include <array>
#include <vector>

#include "ops/cuda/linear.h"

namespace weft::ops {

// From here on cuBLASLt is quicker, as far as bytes and products tell: weights are made fp32 once for all rows.
inline constexpr int64_t kMostTiledRows = 256;

class TiledManyRows {
 public:
  // More rows than one read of linear.h serves or rows that are to be invariant, no gate, and a card with the shared
  // memory.
  static bool takes(const CardMatrix& matrix, const CardProduct& product);
  // As linear does. One call at a time in one stream: its memory is used again by the next.
  void multiply(const CardMatrix& matrix, const CardProduct& product, Stream stream);
  static std::vector<KernelText> kernels(const CardMatrix& matrix, bool exact);

  std::array<const void*, 2> memory() const { return {x_.data(), sums_.data()}; }  // what it uses, may move

 private:
  Workspace x_, sums_;
};

}  // namespace weft::ops
