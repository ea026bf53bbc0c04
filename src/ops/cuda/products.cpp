#include "ops/cuda/products.h"

#include "ops/cuda/tiled_linear.h"

namespace weft::ops {

CardProducts::CardProducts() {
  if (const Blas* blas = find_blas().blas) many_rows_.emplace(*blas);
}

void CardProducts::multiply(const CardMatrix& matrix, const CardProduct& product, Stream stream) {
  const bool by_library = many_rows_ && ManyRows::takes(matrix, product);
  const bool by_tiles = TiledManyRows::takes(matrix, product);
  if (by_tiles && (product.rows <= kMostTiledRows || product.invariant || !by_library))
    tiled_many_.multiply(matrix, product, stream);
  else if (by_library)
    many_rows_->multiply(matrix, product, stream);
  else
    linear(matrix, product, stream);
}

bool CardProducts::gates(const CardMatrix& matrix, int64_t rows, bool invariant) const {
  const bool is_for_many = matrix.is_tiled() ? rows > kMostOfTiledLinear || invariant : many_rows_ && rows > kFewRows;
  return can_gate(matrix) && !is_for_many;
}

std::vector<KernelText> CardProducts::kernels(const CardMatrix& matrix, bool gated, bool exact) const {
  std::vector<KernelText> all = linear_kernels(matrix, gated, exact);
  if (matrix.is_tiled()) {
    const std::vector<KernelText> many = TiledManyRows::kernels(matrix, exact);
    all.insert(all.end(), many.begin(), many.end());
  }
  if (many_rows_)
    for (const CardMatrix::TypedRows& typed : matrix.typed_rows) all.push_back(widen_kernel(matrix, typed));
  return all;
}

}  // namespace weft::ops
