// Products with a card's matrices for any number of rows: which kernels make them, by rows and by how weights lie.
//
//   CardProducts products;
//   products.multiply(matrix, product, stream);
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "ops/cuda/many_rows.h"
#include "ops/cuda/tiled_many.h"

namespace weft::ops {

class CardProducts {
 public:
  CardProducts();  // with cuBLASLt where it is there

  // As linear does. One call at a time in one stream.
  void multiply(const CardMatrix& matrix, const CardProduct& product, Stream stream);
  // Whether a product of so many rows has its gate in its own kernel; else the gate is another one behind it.
  bool gates(const CardMatrix& matrix, int64_t rows, bool invariant) const;
  // All that products with the matrix may launch.
  // All that products with the matrix may launch, with gates or without.
  std::vector<KernelText> kernels(const CardMatrix& matrix, bool gated, bool exact) const;
  std::array<const void*, 2> memory() const { return tiled_many_.memory(); }  // what captured work uses, may move

 private:
  TiledManyRows tiled_many_;
  std::optional<ManyRows> many_rows_;
};

}  // namespace weft::ops
