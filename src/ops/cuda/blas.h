// cuBLASLt, NVIDIA's library of matrix products, found at run time (docs/cuda.md): what multiplies many rows on a card.
//
//   if (const Blas* blas = find_blas().blas) blas->multiply(card, product, workspace, stream);
#pragma once

#include <cstdint>
#include <string>

#include "device/cuda/card.h"
#include "weft/device.h"

namespace weft::ops {

// y [rows, outputs] = x [rows, cols] w [outputs, cols]^T, all fp32 and 16-byte aligned; `add`: y += that.
struct BlasProduct {
  const float *w, *x;
  float* y;
  int64_t rows, outputs, cols, ldx, ldy;  // strides of rows in elements; w has no gaps
  bool add;
  bool exact;  // else x and w are multiplied in TF32: 11 bits of mantissa
};

class Blas {
 public:
  virtual ~Blas() = default;
  virtual const std::string& path() const = 0;
  // In the order of the stream. Throws Error(unsupported) for a product that the library has no way to compute.
  virtual void multiply(cuda::Card& card, const BlasProduct& product, const Workspace& workspace,
                        Stream stream) const = 0;
};

struct BlasSearch {
  const Blas* blas = nullptr;  // null: none
  std::string tried = {}, remedy = {};
};
// The search is made once. Thread-safe.
const BlasSearch& find_blas();

}  // namespace weft::ops
