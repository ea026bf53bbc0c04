// Scores of keys with codes that are no finite number: what products make of those is another number, so such scores
// are worked out element by element. As rare as the keys are, and as slow as it is small.
#pragma once

#include "attention/cuda/kernels/mma/few_bit_queries.h"
#include "attention/cuda/kernels/mma/rows.h"

namespace weft::attention::cuda::mma {

template <class Shape>
class SpecialKeys {
  using Cache = typename Shape::Cache;

 public:
  // In the place of products of kStepKeys keys of a stage, from `first` on.
  WEFT_INLINE static void multiply(const Thread<Shape>& thread, int stage, int first, typename Shape::Scores& s) {
    const auto keys = Shape::keys_of(stage);
    constexpr int kOfRow = Shape::kStepKeys / 4;  // scores of a lane
    WEFT_NO_UNROLL
    for (int i = 0; i < Shape::kFragments * 2 * kOfRow; ++i) {
      const int m = i / (2 * kOfRow), half = i / kOfRow % 2, at = i % kOfRow;
      const int key = first + at / 2 * 8 + thread.column() + at % 2;
      if (!is_special(keys, key)) continue;
      const float score = product(thread.row(m, half), keys, key);
      WEFT_UNROLL
      for (int other = 0; other < Shape::kFragments * 2 * kOfRow; ++other)
        if (other == i) s[other / (2 * kOfRow)][other % kOfRow / 2][other / kOfRow % 2 * 2 + other % 2] = score;
    }
  }

 private:
  WEFT_INLINE static bool is_special(const typename Shape::Keys& keys, int key) {
    u32 found = 0;
    WEFT_NO_UNROLL
    for (int word = 0; word < Shape::kKeyHalves / 2; ++word)
      found |= tile::specials(reinterpret_cast<const u32*>(keys.chunk(key, word / 4))[word % 4]);
    return (found & 0x80808080u) != 0;
  }
  WEFT_INLINE static float product(int row, const typename Shape::Keys& keys, int key) {
    using T = typename Shape::Product;
    const auto queries = Shape::queries();
    float sum = 0;
    WEFT_NO_UNROLL
    for (int i = 0; i < Shape::kDimQk; ++i) {
      const int place = place_of_element<Shape>(i);
      const T q = reinterpret_cast<const T*>(queries.chunk(row, place / 8))[place % 8];
      const Cache k = reinterpret_cast<const Cache*>(keys.chunk(key, i / 16))[i % 16];
      sum += tile::to_float(q) * tile::to_float(k);
    }
    return sum * (1.f / Shape::Halves::kUnit);
  }
};

}  // namespace weft::attention::cuda::mma
