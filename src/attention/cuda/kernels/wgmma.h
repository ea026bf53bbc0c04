// Attention by the products of a warpgroup (wgmma, sm_90a): the CTA's four warps multiply 64 rows at once, behind their
// own backs, from tiles in shared memory. All else is as in mma.h, and of the same text: rows, walk, loads, logits,
// softmax, states.
//
//   softmax 0 | O0 += P0 V, S1 | softmax 1 | O1 += P1 V, S0 of the next tile        64 rows each
//
// Where registers have room for all scores S1 begins before softmax 0. Products are waited for within the tile in which
// they begin: ptxas serializes those that are under way where a loop begins again.
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
  // Keys that a hook makes anew are not there before their tile's turn.
  static constexpr bool kOverlapsTiles = !Shape::H::key_transform;

  WEFT_INLINE void keep_queries(const Thread<Shape>&) {}  // they are multiplied where they lie

  // The first scores of a tile that is there.
  WEFT_INLINE void begin(int tile) { multiply_keys(tile, 0); }
  WEFT_INLINE void wait_for_scores() { ptx::wgmma_wait<0>(products_of(0)); }

  // All of a tile whose first scores are there, but for the last values.
  WEFT_INLINE void multiply(const Rows<Shape>& rows, const Thread<Shape>& thread, int tile, States<Shape>& states) {
    if constexpr (!kOverlapsTiles) {
      begin(tile);
      wait_for_scores();
    }
    if constexpr (kAll) multiply_keys(tile, 1);
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) {
      auto& scores = scores_[m % kAtOnce];
      if (m > 0 && kAll)
        ptx::wgmma_wait<1>(products_of(m));  // beside it values are multiplied
      else if (m > 0)
        ptx::wgmma_wait<0>(products_of(m), outputs(states, m - 1), p_[m - 1]);  // which was multiplied meanwhile
      Logits<Shape>(rows, thread, tile).make(0, scores, m);
      if constexpr (Shape::F::kSoftmax) states.to_probabilities(scores, rows.scale() * tile::kLog2E, m);
      tile::pack_a<T>(p_[m], products_of(m));
      if (m == kFragments - 1) break;
      multiply_values(tile, m, states);
      if (!kAll) multiply_keys(tile, m + 1);
    }
    if constexpr (!kOverlapsTiles) {
      multiply_values(tile, kFragments - 1, states);
      wait_for_outputs<0>(states);
    }
  }

  // The tile's last values, and beside them the first scores of the next one. Where it returns the tile was read.
  WEFT_INLINE void end(int tile, int next, States<Shape>& states) {
    multiply_values(tile, kFragments - 1, states);
    begin(next);
    wait_for_outputs<1>(states);
  }

 private:
  static constexpr bool kAll = Shape::kHasAllScores;
  static constexpr int kAtOnce = kAll ? kFragments : 1;
  using Outputs = float[Shape::kPadVo / 2];

  WEFT_INLINE void multiply_keys(int tile, int m) {
    const auto keys = Shape::keys_of(tile % Shape::kStages);
    auto& s = products_of(m);
    ptx::wgmma_fence(s);
    WEFT_UNROLL
    for (int k = 0; k < Shape::kPadQk; k += 16)
      tile::multiply_async<T>(s, Shape::queries().rows(64 * m, k), keys.rows(0, k), k > 0);
    ptx::wgmma_commit();
  }
  WEFT_INLINE void multiply_values(int tile, int m, States<Shape>& states) {
    const auto values = Shape::values_of(tile % Shape::kStages);
    auto& o = outputs(states, m);
    ptx::wgmma_fence(o, p_[m]);
    WEFT_UNROLL
    for (int k = 0; k < kKeys; k += 16) tile::multiply_async<T>(o, p_[m][k / 16], values.columns(k, 0), true);
    ptx::wgmma_commit();
  }
  template <int kBehind>
  WEFT_INLINE void wait_for_outputs(States<Shape>& states) {
    if constexpr (kAll)
      ptx::wgmma_wait<kBehind>(outputs(states, 0), p_[0], outputs(states, 1), p_[1]);
    else
      ptx::wgmma_wait<kBehind>(outputs(states, kFragments - 1), p_[kFragments - 1]);
  }
  WEFT_INLINE float (&products_of(int m))[kKeys / 2] {
    return reinterpret_cast<float(&)[kKeys / 2]>(scores_[m % kAtOnce]);
  }
  WEFT_INLINE static Outputs& outputs(States<Shape>& states, int m) { return reinterpret_cast<Outputs&>(states.o[m]); }

  typename Shape::Scores scores_[kAtOnce];
  Probabilities p_[kFragments];
};

}  // namespace mma

// 64 * kFragments rows.
template <class S, class F, int kFragments, int kKeys>
using Wgmma = mma::Attention<mma::Shape<S, F, kFragments, 4, 1, kKeys, false, true>,
                             mma::WarpgroupProducts<mma::Shape<S, F, kFragments, 4, 1, kKeys, false, true>>>;
#endif

}  // namespace weft::attention::cuda
