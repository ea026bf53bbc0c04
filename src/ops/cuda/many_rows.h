// Products with a card's matrices for many rows: weights are made fp32 a piece at a time, and cuBLASLt multiplies.
//
//   ManyRows many(*find_blas().blas);
//   if (many.takes(matrix, product)) many.multiply(matrix, product, exact, stream);
#pragma once

#include "ops/cuda/blas.h"
#include "ops/cuda/linear.h"

namespace weft::ops {

inline constexpr int64_t kFewRows = 16;  // up to here the weights' bytes decide, and linear multiplies

class ManyRows {
 public:
  explicit ManyRows(const Blas& blas) : blas_(&blas) {}

  // More rows than the kernels of linear.h are for, no gate, and addresses that cuBLASLt takes.
  static bool takes(const CardMatrix& matrix, const CardProduct& product);
  // As linear does; in fp32 where the product is exact, else in TF32. One call at a time in one stream: its memory is
  // used again by the next.
  void multiply(const CardMatrix& matrix, const CardProduct& product, Stream stream);

 private:
  const float* normed(const CardMatrix& matrix, const CardProduct& product, Stream stream);

  const Blas* blas_;
  Workspace x_, weights_, workspace_;
};

}  // namespace weft::ops
