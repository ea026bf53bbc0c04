// The running softmax of a tile's rows, in the layout of products (fragment.h): a lane holds two rows, row(0) and row(1), of
// each 16-row fragment, and four lanes together hold a row.
//
//   RowState state;
//   float scale[2];
//   state.step(scores, sm_scale * kLog2E, scale);   // scores become probabilities; what was summed before shrinks by scale
//
// Probabilities are 2^(s log2(e) - b), b = m log2(e) rounded once, m the row's maximum so far: a tile that leaves the maximum
// as it is scales by exactly 1, and a row that has seen no key stays empty (docs/numerics.md).
#pragma once

#include "tile/cuda/reduce.h"

namespace weft::tile {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

struct RowState {
  float base[2], sum[2];  // b, and this lane's part of the sum of probabilities

  WEFT_INLINE static RowState empty() {
    const float none = ptx::from_bits(0xff800000u);
    return {{none, none}, {0.f, 0.f}};
  }

  // kFragments fragments of 8 columns; scores[f][2 r + e] is of row r, hidden ones are -inf. A score times `to_log2`, which is
  // positive, is the logit times log2(e).
  template <int kFragments>
  WEFT_INLINE void step(float (&scores)[kFragments][4], float to_log2, float (&scale)[2]) {
    WEFT_UNROLL
    for (int r = 0; r < 2; ++r) {
      float largest = base[r];
      WEFT_UNROLL
      for (int f = 0; f < kFragments; ++f)
        largest = ptx::larger(largest, ptx::larger(scores[f][2 * r], scores[f][2 * r + 1]) * to_log2);
      largest = lane_max<4>(largest);
      // A row without a key so far: any finite base keeps -inf - b from being NaN.
      const float b = largest == ptx::from_bits(0xff800000u) ? 0.f : largest;
      scale[r] = ptx::exp2_fast(base[r] - b);
      sum[r] *= scale[r];
      WEFT_UNROLL
      for (int f = 0; f < kFragments; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e) {
        float& s = scores[f][2 * r + e];
        s = ptx::exp2_fast(s * to_log2 - b);
        sum[r] += s;
      }
      base[r] = largest;
    }
  }

  // After the last step: the sum of the whole row. All lanes of the warp call.
  WEFT_INLINE float total(int r) const { return lane_sum<4>(sum[r]); }
  // The natural logarithm of the sum of exp of the row's logits; -inf for a row without a key.
  WEFT_INLINE float lse(int r, float total) const {
    return total > 0.f ? (base[r] + ptx::log2_fast(total)) * kLn2 : ptx::from_bits(0xff800000u);
  }
};

}  // namespace weft::tile
