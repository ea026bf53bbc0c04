// cuBLASLt, NVIDIA's library of matrix products, found at run time (docs/cuda.md): what multiplies many rows on a card.
//
//   if (const Blas* blas = find_blas().blas) blas->multiply(card, product, workspace, stream);
#pragma once

#include <cstdint>
#include <string>

#include "device/cuda/card.h"
#include "weft/device.h"
#include "weft/tensor.h"

namespace weft::ops {

// At whole elements: rows `ld` elements apart, or its columns, which then have no gaps within.
struct BlasMatrix {
  const void* data;
  int64_t ld;
  bool by_columns = false;
};
// c [rows, cols] = a [rows, inner] b [inner, cols]; `add`: c += that. All of one type, sums in fp32.
struct BlasProduct {
  BlasMatrix a, b;
  void* c;
  int64_t ldc, rows, inner, cols;
  bool add;
  bool exact;                 // else a and b of fp32 are multiplied in TF32: 11 bits of mantissa
  DType dtype = DType::fp32;  // or bf16
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
