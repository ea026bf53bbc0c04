// Scales of stored numbers, where they cost least: a head's multiplies logits with the softmax's own scale, and states
// as they leave; a token's multiplies its scores, and its probabilities once their sum was taken. They come by copies,
// as keys and values do.
#pragma once

#include "attention/cuda/kernels/mma/shape.h"
#include "tile/cuda/ptx/cp_async.h"

namespace weft::attention::cuda::mma {

// Of a KV head; 1 where there are others or none.
template <class Shape>
struct HeadScales {
  static constexpr bool kThere = Shape::S::kScaling == Scaling::head;

  WEFT_INLINE static void load(const Thread<Shape>& thread, const Call& call, int kv_head) {
    if (kThere && thread.index == 0) load(Shape::shared().scales[0], call, kv_head);
  }
  WEFT_INLINE static void load(Scales& scales, const Call& call, int kv_head) {
    ptx::cp_async_4(&scales.of_key, call.k_scale.data + kv_head * call.k_scale.head_stride);
    ptx::cp_async_4(&scales.of_value, call.v_scale.data + kv_head * call.v_scale.head_stride);
  }
  // With what keys of few bits are multiplied by as halves of products.
  static constexpr bool kOfKey = kThere || Shape::Halves::kUnit != 1.f;
  WEFT_INLINE static float of_key(const ItemRecord& item) {
    if constexpr (kThere) return Shape::head_scales(item).of_key * Shape::Halves::kUnit;
    return Shape::Halves::kUnit;
  }
  WEFT_INLINE static float of_value(const ItemRecord& item) {
    if constexpr (kThere) return Shape::head_scales(item).of_value;
    return 1.f;
  }
};

// Of a tile's tokens: where those of neighbours lie together.
template <class Shape>
struct TokenScales {
  static constexpr int kKeys = Shape::kKeys;
  float of_key[kKeys], of_value[kKeys];
};
template <class Shape>
WEFT_INLINE TokenScales<Shape>& token_scales(int tile) {
  return reinterpret_cast<TokenScales<Shape>*>(Shape::shared().scales)[tile % Shape::kRing];
}
struct alignas(8) TwoScales {
  float of[2];
};

// Scores or probabilities of keys from `first` on by their tokens' scales, which are those of a tile.
template <class Shape>
WEFT_INLINE void multiply_by_tokens(const Thread<Shape>& thread, const float* scales, int first,
                                    typename Shape::Scores& s) {
  scales += first + thread.column();
  WEFT_UNROLL
  for (int f = 0; f < Shape::kStepKeys / 8; ++f) {
    const TwoScales two = *reinterpret_cast<const TwoScales*>(scales + 8 * f);
    WEFT_UNROLL
    for (int m = 0; m < Shape::kStepFragments; ++m) WEFT_UNROLL
    for (int e = 0; e < 4; ++e) s[m][f][e] *= two.of[e % 2];
  }
}

}  // namespace weft::attention::cuda::mma
