// The states of a warp's rows, as fragments have them: o, and of the softmax the maxima and sums.
//
// Beside values of few bits o is of their halves (tile::Halves), and of weights, which are probabilities by their
// tokens' scales, times a power of two of each row: fp16 numbers that end neither at its largest nor near its smallest
// one.
#pragma once

#include "attention/cuda/kernels/mma/shape.h"

namespace weft::attention::cuda::mma {

template <class Shape>
struct States {
  static constexpr int kFragments = Shape::kFragments, kStep = Shape::kStepFragments, kColumns = Shape::kOwnPadVo / 8;
  using Halves = typename Shape::Halves;
  tile::RowState rows[kFragments];
  float o[kFragments][kColumns][4];
  // Of few bits: what offsets of values are in o, and the powers of two of rows, each the exponent of a float.
  float offsets[kFragments][4];
  u32 exponents;
  static_assert(kFragments <= 2);
  static constexpr float kPower = 0x1p7f;  // probabilities are at most 2^8
  static constexpr u32 kLargestExponent = 247;
  static constexpr float kLargestWeight = 0x1p15f;

  // Of a row of o, which lie in runs of a lane's neighbours: element i of the run from column 4 * kRun * run +
  // kRun * (lane % 4) on.
  static constexpr int kRun = Shape::kRun, kRuns = Shape::kOwnPadVo / (4 * kRun);
  WEFT_INLINE float output(int m, int half, int run, int i) const {
    const int pair = i % (kRun / 2);
    const float x = o[m][run * (kRun / 2) + pair][2 * half + i / (kRun / 2)];
    if constexpr (!Shape::kFewBits) {
      return x;
    } else {
      constexpr float kOfOdd = 1.f / (1 << Halves::kOfOddPairs);
      const float of_pair = pair % 2 == 1 ? x * kOfOdd : x;
      const float own = Halves::kOffset > 0 ? of_pair - offsets[m][2 * half] : of_pair;
      return own * Halves::kUnit * (Shape::kFollowsWeights ? tile::reciprocal_of_power(power(m, half)) : 1.f / kPower);
    }
  }

  WEFT_INLINE void clear() {
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) {
      rows[m] = tile::RowState::empty();
      WEFT_UNROLL
      for (int f = 0; f < kColumns; ++f) WEFT_UNROLL
      for (int e = 0; e < 4; ++e) o[m][f][e] = 0;
      if constexpr (Shape::kFewBits) WEFT_UNROLL
      for (int e = 0; e < 4; ++e) offsets[m][e] = 0;
    }
    exponents = kLargestExponent * 0x01010101u;
  }

  // Turns scores of fragments from `fragment` on into probabilities, and scales o where a maximum has grown, which most
  // tiles leave as it is.
  WEFT_INLINE void to_probabilities(typename Shape::Scores& scores, float to_log2, int fragment = 0) {
    float shrink[kStep][2];
    auto& own = reinterpret_cast<tile::RowState(&)[kStep]>(rows[fragment]);
    if (tile::follow_maxima(own, scores, to_log2, shrink)) {
      WEFT_UNROLL
      for (int m = 0; m < kStep; ++m) multiply(fragment + m, shrink[m]);
    }
    tile::exponentiate(own, scores, to_log2);
  }

  // Probabilities by their scales become the weights that values of few bits are multiplied by. Powers follow a row's
  // largest weight down, as seldom as maxima follow scores.
  WEFT_INLINE void weigh(typename Shape::Scores& weights) {
    if constexpr (Shape::kFollowsWeights) follow_weights(weights);
    if constexpr (Shape::kFewBits) WEFT_UNROLL
    for (int i = 0; i < 2 * kFragments; ++i) {
      const float own = Shape::kFollowsWeights ? power(i / 2, i % 2) : kPower;
      WEFT_UNROLL
      for (int f = 0; f < Shape::kStepKeys / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e) weights[i / 2][f][i % 2 * 2 + e] *= own;
    }
  }

  // All lanes of the warp call. Whether some element of o is NaN or Inf.
  WEFT_INLINE bool has_non_finite() const {
    float zero = 0;
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int f = 0; f < kColumns; ++f) WEFT_UNROLL
    for (int e = 0; e < 4; ++e) zero += o[m][f][e] * 0.f;
    return ptx::ballot(zero != 0.f) != 0;  // NaN
  }

 private:
  WEFT_INLINE float power(int m, int half) const {
    return ptx::from_bits((exponents >> 8 * (2 * m + half) & 0xffu) << 23);
  }
  WEFT_INLINE void multiply(int m, const float (&factors)[2]) {
    WEFT_UNROLL
    for (int f = 0; f < kColumns; ++f) WEFT_UNROLL
    for (int e = 0; e < 4; ++e) o[m][f][e] *= factors[e / 2];
    if constexpr (Halves::kOffset > 0) WEFT_UNROLL
    for (int e = 0; e < 4; ++e) offsets[m][e] *= factors[e / 2];
  }
  WEFT_INLINE void follow_weights(const typename Shape::Scores& weights) {
    float largest[kFragments][2];
    bool exceeds = false;
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int r = 0; r < 2; ++r) {
      float x = 0;
      WEFT_UNROLL
      for (int f = 0; f < Shape::kStepKeys / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e) x = ptx::larger(x, ptx::absolute(weights[m][f][2 * r + e]));
      largest[m][r] = x;
      exceeds = exceeds || x * power(m, r) > kLargestWeight;
    }
    if (ptx::ballot(exceeds) == 0) return;
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) {
      float factors[2];
      WEFT_UNROLL
      for (int r = 0; r < 2; ++r) {
        const float x = tile::lane_max<4>(largest[m][r]), before = power(m, r);
        // The largest weight becomes 2^7 to 2^8; one that is not finite stays so whatever it is multiplied by.
        if (x * before > kLargestWeight && x - x == 0.f) {
          const u32 exponent = 261u - (ptx::to_bits(x) >> 23);
          const int at = 8 * (2 * m + r);
          exponents = (exponents & ~(0xffu << at)) | (exponent < kLargestExponent ? exponent : kLargestExponent) << at;
        }
        factors[r] = power(m, r) * tile::reciprocal_of_power(before);
      }
      multiply(m, factors);
    }
  }
};

}  // namespace weft::attention::cuda::mma
