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
    if (!kThere || thread.index != 0) return;
    Scales& scales = Shape::shared().scales[0];
    ptx::cp_async_4(&scales.of_key, call.k_scale.data + kv_head * call.k_scale.head_stride);
    ptx::cp_async_4(&scales.of_value, call.v_scale.data + kv_head * call.v_scale.head_stride);
  }
  WEFT_INLINE static float of_key() {
    if constexpr (kThere) return Shape::shared().scales[0].of_key;
    return 1.f;
  }
  WEFT_INLINE static float of_value() {
    if constexpr (kThere) return Shape::shared().scales[0].of_value;
    return 1.f;
  }
};

// Of a tile's tokens.
template <class Shape>
WEFT_INLINE Scales* token_scales(int tile) {
  return Shape::shared().scales + tile % Shape::kRing * Shape::kKeys;
}

// Scores or probabilities of keys from `first` on by their tokens' scales, where these have any.
template <class Shape, float Scales::*kOf>
WEFT_INLINE void multiply_by_tokens(const Thread<Shape>& thread, int tile, int first, typename Shape::Scores& s) {
  if constexpr (Shape::kTokenScales) {
    const Scales* const scales = token_scales<Shape>(tile) + first + thread.column();
    WEFT_UNROLL
    for (int f = 0; f < Shape::kStepKeys / 8; ++f) WEFT_UNROLL
    for (int e = 0; e < 2; ++e) {
      const float scale = scales[8 * f + e].*kOf;
      WEFT_UNROLL
      for (int m = 0; m < Shape::kStepFragments; ++m) WEFT_UNROLL
      for (int half = 0; half < 2; ++half) s[m][f][2 * half + e] *= scale;
    }
  }
}

}  // namespace weft::attention::cuda::mma
