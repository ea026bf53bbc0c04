// Attention by the products of a warpgroup (wgmma, sm_90a): the CTA's four warps multiply 64 rows at once, behind their
// own backs, from tiles in shared memory. All else is as in mma.h, and of the same text: rows, walk, loads, logits,
// softmax, states.
//
//   S0 | softmax 0 | O0 += P0 V, S1 | softmax 1 | O1 += P1 V        64 rows each
//   S0, S1 | softmax 0 | O0 += P0 V | softmax 1 | O1 += P1 V        where registers have room for all scores
//
// Two CTAs fit a multiprocessor: one multiplies while the other has its softmax.
#pragma once

#include "attention/cuda/kernels/mma.h"

namespace weft::attention::cuda {

#if WEFT_SM >= 90
namespace mma {

template <class Shape>
class WarpgroupProducts {
  using T = typename Shape::T;
  static constexpr int kFragments = Shape::kFragments, kKeys = Shape::kKeys;
  using Probabilities = u32[kKeys / 16][4];

 public:
  WEFT_INLINE void keep_queries(const Thread<Shape>&) {}  // they are multiplied where they lie

  // A tile of keys and values that are there. Where it returns, they were read.
  WEFT_INLINE void multiply(const Rows<Shape>& rows, const Thread<Shape>& thread, int tile,
                            States<Shape>& states) const {
    const int stage = tile % Shape::kStages;
    const auto keys = Shape::keys_of(stage);
    const auto values = Shape::values_of(stage);
    constexpr bool kAll = Shape::kHasAllScores;
    typename Shape::Scores scores[kAll ? kFragments : 1];
    Probabilities p[kFragments];
    const auto begin = [&](int m) {
      auto& s = products_of(scores[kAll ? m : 0]);
      ptx::wgmma_fence(s);
      WEFT_UNROLL
      for (int k = 0; k < Shape::kPadQk; k += 16)
        tile::multiply_async<T>(s, Shape::queries().rows(64 * m, k), keys.rows(0, k), k > 0);
      ptx::wgmma_commit();
    };
    if constexpr (kAll) WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) begin(m);
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) {
      auto& own = scores[kAll ? m : 0];
      auto& s = products_of(own);
      if constexpr (!kAll) begin(m);
      if (kAll)
        ptx::wgmma_wait<1>(s);  // beside it the other scores, or values, are multiplied
      else if (m == 0)
        ptx::wgmma_wait<0>(s);
      else
        ptx::wgmma_wait<0>(s, outputs(states, m - 1), p[m - 1]);  // which was multiplied meanwhile
      Logits<Shape>(rows, thread, tile).make(0, own, m);
      if constexpr (Shape::F::kSoftmax) states.to_probabilities(own, rows.scale() * tile::kLog2E, m);
      tile::pack_a<T>(p[m], s);
      auto& o = outputs(states, m);
      ptx::wgmma_fence(o, p[m]);
      WEFT_UNROLL
      for (int k = 0; k < kKeys; k += 16) tile::multiply_async<T>(o, p[m][k / 16], values.columns(k, 0), true);
      ptx::wgmma_commit();
    }
    if constexpr (kAll)
      ptx::wgmma_wait<0>(outputs(states, 0), p[0], outputs(states, 1), p[1]);
    else
      ptx::wgmma_wait<0>(outputs(states, kFragments - 1), p[kFragments - 1]);
  }

 private:
  using Outputs = float[Shape::kPadVo / 2];
  WEFT_INLINE static float (&products_of(typename Shape::Scores& scores))[kKeys / 2] {
    return reinterpret_cast<float(&)[kKeys / 2]>(scores);
  }
  WEFT_INLINE static Outputs& outputs(States<Shape>& states, int m) { return reinterpret_cast<Outputs&>(states.o[m]); }
};

}  // namespace mma

// 64 * kFragments rows.
template <class S, class F, int kFragments, int kKeys>
using Wgmma = mma::Attention<mma::Shape<S, F, kFragments, 4, 1, kKeys, false, true>,
                             mma::WarpgroupProducts<mma::Shape<S, F, kFragments, 4, 1, kKeys, false, true>>>;
#endif

}  // namespace weft::attention::cuda
