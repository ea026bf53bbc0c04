// The running softmax of a tile's rows, in the layout of products (fragment.h): a lane holds two rows, row(0) and
// row(1), of each 16-row fragment, and four lanes together hold a row.
//
//   RowState state[1];
//   float shrink[1][2];
//   if (follow_maxima(state, scores, sm_scale * kLog2E, shrink)) ...;   // earlier sums shrink so
//   exponentiate(state, scores, sm_scale * kLog2E);                     // scores become probabilities
//
// Probabilities are 2^(s log2(e) - b), b = m log2(e) rounded once, m a maximum that the row had: it follows the largest
// score only where this is more than 2^8 times as probable, as sums that have to shrink are work. So other tiles scale
// by exactly 1, and a row that has seen no key stays empty. Where b is far from 0, m is subtracted first
// (docs/numerics.md).
#pragma once

#include "tile/cuda/reduce.h"

namespace weft::tile {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

inline constexpr float kMostGrowth = 8;

// Of b: beside it the product is rounded by so much, or overflows, that 2^(s log2(e) - b) is any number at s = m.
WEFT_INLINE bool is_far(float b) { return ptx::absolute(b) > 65536.f; }
// The b of a maximum; of a row without a key so far any finite number, which keeps -inf - b from being NaN.
WEFT_INLINE float base_of(float maximum, float to_log2) {
  return maximum == ptx::from_bits(0xff800000u) ? 0.f : ptx::product(maximum, to_log2);
}
// From sums relative to `before` to those relative to `now`, which are maxima.
WEFT_INLINE float shrink_of(float before, float now, float to_log2) {
  const float of_before = ptx::product(before, to_log2), of_now = base_of(now, to_log2);
  const bool far = is_far(base_of(before, to_log2)) || is_far(of_now);
  return ptx::exp2_fast(far ? ptx::product(before - now, to_log2) : of_before - of_now);
}

// The logarithm of a row's sum, and what rounding took from it where it is so far from 0 that this matters to those who
// merge it with others.
struct Lse {
  float value, rest;
};
// Of the maximum of its scores, and the sum of its probabilities; a score times `scale` is a logit.
WEFT_INLINE Lse lse_of(float maximum, float sum, float scale) {
  if (sum == 0.f) return {ptx::from_bits(0xff800000u), 0.f};
  const float base = ptx::product(maximum, scale * kLog2E), log2_sum = ptx::log2_fast(sum);
  if (!is_far(base)) return {(base + log2_sum) * kLn2, 0.f};
  const float logit = ptx::product(maximum, scale), log_sum = ptx::product(log2_sum, kLn2), lse = logit + log_sum;
  return {lse, logit - lse + log_sum};
}

struct RowState {
  float maximum[2], sum[2];  // m as a score, and this lane's part of the sum of probabilities

  WEFT_INLINE static RowState empty() {
    const float none = ptx::from_bits(0xff800000u);
    return {{none, none}, {0.f, 0.f}};
  }

  // After the last step: the sum of the whole row. All lanes of the warp call.
  WEFT_INLINE float total(int r) const { return lane_sum<4>(sum[r]); }
};

// kRows fragments of 16 rows, each with kFragments of 8 columns; scores[m][f][2 r + e] is of row r of fragment m,
// hidden ones are -inf. A score times `to_log2`, which is positive and finite, is the logit times log2(e).
//
// States follow the scores: whether any row of the warp shrinks, and by what each does. All lanes of the warp call.
template <int kRows, int kFragments>
WEFT_INLINE bool follow_maxima(RowState (&state)[kRows], const float (&scores)[kRows][kFragments][4], float to_log2,
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
  bool grows = false;
  WEFT_UNROLL
  for (int m = 0; m < kRows; ++m) WEFT_UNROLL
  for (int r = 0; r < 2; ++r) {
    const bool row_grows = (largest[m][r] - state[m].maximum[r]) * to_log2 > kMostGrowth;
    if (!row_grows) largest[m][r] = state[m].maximum[r];
    grows = grows || row_grows;
  }
  if (ptx::ballot(grows) == 0) return false;
  WEFT_UNROLL
  for (int m = 0; m < kRows; ++m) WEFT_UNROLL
  for (int r = 0; r < 2; ++r) {
    shrink[m][r] = shrink_of(state[m].maximum[r], largest[m][r], to_log2);
    state[m].sum[r] *= shrink[m][r];
    state[m].maximum[r] = largest[m][r];
  }
  return true;
}

// Scores become probabilities.
template <int kRows, int kFragments>
WEFT_INLINE void exponentiate(RowState (&state)[kRows], float (&scores)[kRows][kFragments][4], float to_log2) {
  float base[kRows][2];
  bool far = false;
  WEFT_UNROLL
  for (int m = 0; m < kRows; ++m) WEFT_UNROLL
  for (int r = 0; r < 2; ++r) {
    base[m][r] = base_of(state[m].maximum[r], to_log2);
    far = far || is_far(base[m][r]);
  }
  if (far) [[unlikely]] {
    WEFT_UNROLL
    for (int m = 0; m < kRows; ++m) WEFT_UNROLL
    for (int r = 0; r < 2; ++r) {
      if (!is_far(base[m][r])) continue;
      base[m][r] = 0;
      WEFT_UNROLL
      for (int f = 0; f < kFragments; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e) scores[m][f][2 * r + e] -= state[m].maximum[r];
    }
  }
  WEFT_UNROLL
  for (int m = 0; m < kRows; ++m) WEFT_UNROLL
  for (int r = 0; r < 2; ++r) {
    float sum = state[m].sum[r];
    WEFT_UNROLL
    for (int f = 0; f < kFragments; ++f) WEFT_UNROLL
    for (int e = 0; e < 2; ++e) {
      float& s = scores[m][f][2 * r + e];
      s = ptx::exp2_fast(ptx::multiply_add(s, to_log2, -base[m][r]));
      sum += s;
    }
    state[m].sum[r] = sum;
  }
}

}  // namespace weft::tile
