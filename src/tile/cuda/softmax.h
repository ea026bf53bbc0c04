// The running softmax of a tile's rows, in the layout of products (fragment.h): a lane holds two rows, row(0) and
// row(1), of each 16-row fragment, and four lanes together hold a row.
//
//   RowState state[1];
//   float shrink[1][2];
//   softmax_step(state, scores, sm_scale * kLog2E, shrink);   // scores become probabilities; earlier sums shrink so
//
// Probabilities are 2^(s log2(e) - b), b = m log2(e) rounded once, m a maximum that the row had: b follows the maximum
// only where this is more than 2^8 times as probable, as sums that have to shrink are work. So other tiles scale by
// exactly 1, and a row that has seen no key stays empty (docs/numerics.md).
#pragma once

#include "tile/cuda/reduce.h"

namespace weft::tile {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

inline constexpr float kMostGrowth = 8;

struct RowState {
  float base[2], sum[2];  // b, and this lane's part of the sum of probabilities

  WEFT_INLINE static RowState empty() {
    const float none = ptx::from_bits(0xff800000u);
    return {{none, none}, {0.f, 0.f}};
  }

  // After the last step: the sum of the whole row. All lanes of the warp call.
  WEFT_INLINE float total(int r) const { return lane_sum<4>(sum[r]); }
  // The natural logarithm of the sum of exp of the row's logits; -inf for a row without a key.
  WEFT_INLINE float lse(int r, float total) const {
    return total > 0.f ? (base[r] + ptx::log2_fast(total)) * kLn2 : ptx::from_bits(0xff800000u);
  }
};

// kRows fragments of 16 rows, each with kFragments of 8 columns; scores[m][f][2 r + e] is of row r of fragment m,
// hidden ones are -inf. A score times `to_log2`, which is positive, is the logit times log2(e). All lanes of the warp
// call.
template <int kRows, int kFragments>
WEFT_INLINE void softmax_step(RowState (&state)[kRows], float (&scores)[kRows][kFragments][4], float to_log2,
                              float (&shrink)[kRows][2]) {
  float largest[kRows][2];
  WEFT_UNROLL
  for (int m = 0; m < kRows; ++m) WEFT_UNROLL
  for (int r = 0; r < 2; ++r) {
    float x = scores[m][0][2 * r];
    WEFT_UNROLL
    for (int f = 0; f < kFragments; ++f) x = ptx::larger(x, ptx::larger(scores[m][f][2 * r], scores[m][f][2 * r + 1]));
    largest[m][r] = x;
  }
  WEFT_UNROLL
  for (int mask = 2; mask > 0; mask /= 2) WEFT_UNROLL
  for (int m = 0; m < kRows; ++m) WEFT_UNROLL
  for (int r = 0; r < 2; ++r) largest[m][r] = ptx::larger(largest[m][r], ptx::shuffle_xor(largest[m][r], mask));
  WEFT_UNROLL
  for (int m = 0; m < kRows; ++m) WEFT_UNROLL
  for (int r = 0; r < 2; ++r) {
    const float before = state[m].base[r], now = largest[m][r] * to_log2;
    const float base = now > before + kMostGrowth ? now : before;
    // A row without a key so far: any finite base keeps -inf - b from being NaN.
    const float b = base == ptx::from_bits(0xff800000u) ? 0.f : base;
    shrink[m][r] = ptx::exp2_fast(before - b);
    float sum = state[m].sum[r] * shrink[m][r];
    WEFT_UNROLL
    for (int f = 0; f < kFragments; ++f) WEFT_UNROLL
    for (int e = 0; e < 2; ++e) {
      float& s = scores[m][f][2 * r + e];
      s = ptx::exp2_fast(s * to_log2 - b);
      sum += s;
    }
    state[m].sum[r] = sum;
    state[m].base[r] = base;
  }
}

}  // namespace weft::tile
