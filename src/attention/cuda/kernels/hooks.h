// What a variant and a mask do to scores and vectors, as kernels call it. P: their parameters, V: the variant, M: the
// mask.
#pragma once

#include "attention/cuda/kernels/item.h"
#include "tile/cuda/reduce.h"
#include "tile/cuda/variant.h"

namespace weft::attention::cuda {

template <class P_, class V_, class M_>
struct Functors {
  using P = P_;
  using V = V_;
  using M = M_;
  using OfVariant = detail::Hooks<V, P>;
  using OfMask = detail::Hooks<M, P>;
  static constexpr bool kSoftmax = OfVariant::use_softmax;

  // Their state for one request.
  struct State {
    V variant;
    M mask;
  };
  WEFT_INLINE static State enter(const P& p, int request) {
    State state{};
    if constexpr (OfVariant::init) state.variant.init(p, Request{request});
    if constexpr (OfMask::init) state.mask.init(p, Request{request});
    return state;
  }

  // Whether it is known before any score that the variant leaves all logits of the call as they are.
  WEFT_INLINE static bool leaves_logits(const P& p) {
    if constexpr (requires { V::leaves_logits(p); }) return V::leaves_logits(p) && !OfVariant::logits_mask;
    return false;
  }

  // What a key that a row does not see scores.
  WEFT_INLINE static float hidden() { return kSoftmax ? -infinity() : 0.f; }

  // The logit of a key inside the row's intervals, of its score q . k.
  WEFT_INLINE static float logit(const P& p, const FusedRow& row, int kv_idx, int kv_pos, float score) {
    float s = score * p.sm_scale;
    if constexpr (OfVariant::logits_transform || OfVariant::logits_mask || OfMask::logits_mask) {
      State state = enter(p, row.request);
      const Score c{row.request, row.idx, kv_idx, row.head, row.kv_head, row.pos, kv_pos, row.qo_len, row.kv_len, {}};
      if constexpr (OfVariant::logits_transform) s = static_cast<float>(state.variant.logits_transform(p, c, s));
      bool sees = true;
      if constexpr (OfVariant::logits_mask) sees = state.variant.logits_mask(p, c);
      if constexpr (OfMask::logits_mask) sees = sees && state.mask.logits_mask(p, c);
      s = sees ? s : hidden();
    }
    return s;
  }
};

// A vector of kDim floats that a warp reads, and its sums; all of its lanes call.
template <int kDim>
WEFT_INLINE Vec vector_of(const float* x) {
  float sum = 0, squares = 0;
  for (int i = ptx::lane(); i < kDim; i += 32) {
    sum += x[i];
    squares += x[i] * x[i];
  }
  return {x, kDim, tile::lane_sum(sum), tile::lane_sum(squares)};
}

}  // namespace weft::attention::cuda
