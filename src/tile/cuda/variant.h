// The language of variants for a CUDA kernel: what the target brings, and the text that all targets share.
//
//   const weft::Score c{batch, qo_idx, kv_idx, qo_head, kv_head, q_pos, kv_pos, qo_len, kv_len, {}};
//   s = variant.logits_transform(p, c, s);
//
// A kernel's text includes this, then comes the variant's own, then what instantiates the kernel for it.
#pragma once

#include "tile/cuda/ptx/math.h"

namespace weft {

using real = float;

WEFT_INLINE float infinity() { return ptx::from_bits(0x7f800000u); }
WEFT_INLINE float sqrt(float x) { return ptx::square_root(x); }

namespace detail {

WEFT_INLINE float not_a_number() { return ptx::from_bits(0x7fc00000u); }
WEFT_INLINE float from_bits(u32 x) { return ptx::from_bits(x); }
WEFT_INLINE u32 to_bits(float x) { return ptx::to_bits(x); }

// A thread computes one score at a time.
struct KeyRun {};
// Bit row_start + key.
WEFT_INLINE bool bit_of(const u8* bytes, long long row_start, int key, KeyRun) {
  const long long bit = row_start + key;
  return (bytes[bit >> 3] >> (bit & 7) & 1) != 0;
}

}  // namespace detail
}  // namespace weft

#include "tile/cuda/math.h"
#include "tile/variant/language.h"

namespace weft {

// A query, key, value or output that a vector hook changes: all of it lies in memory that the thread reads, in fp32,
// and its sums are known.
struct Vec {
  const float* data;
  int dim;
  float sum, sum_of_squares;
  WEFT_INLINE float operator[](int i) const { return data[i]; }
  WEFT_INLINE int size() const { return dim; }
  WEFT_INLINE float partner(int i) const { return i % 2 == 0 ? -data[i + 1] : data[i - 1]; }
  WEFT_INLINE float total() const { return sum; }
  WEFT_INLINE float squares() const { return sum_of_squares; }
  WEFT_INLINE float product(TensorRow<float> row) const {
    float sum_of_products = 0;
    for (int i = 0; i < dim; ++i) sum_of_products += data[i] * row[i];
    return sum_of_products;
  }
};

}  // namespace weft

#include "tile/abi/leaf.h"
#include "tile/variant/hooks.h"
#include "tile/variant/vectors.h"
