// The states of a warp's rows, as fragments have them: o, and of the softmax the maxima and sums.
#pragma once

#include "attention/cuda/kernels/mma/shape.h"

namespace weft::attention::cuda::mma {

template <class Shape>
struct States {
  static constexpr int kFragments = Shape::kFragments, kStep = Shape::kStepFragments, kColumns = Shape::kOwnPadVo / 8;
  tile::RowState rows[kFragments];
  float o[kFragments][kColumns][4];

  // Of a row of o, which lie in runs of a lane's neighbours: element i of the run from column 4 * kRun * run +
  // kRun * (lane % 4) on.
  static constexpr int kRun = Shape::kRun, kRuns = Shape::kOwnPadVo / (4 * kRun);
  WEFT_INLINE float output(int m, int half, int run, int i) const {
    return o[m][run * (kRun / 2) + i % (kRun / 2)][2 * half + i / (kRun / 2)];
  }

  WEFT_INLINE void clear() {
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) {
      rows[m] = tile::RowState::empty();
      WEFT_UNROLL
      for (int f = 0; f < kColumns; ++f) WEFT_UNROLL
      for (int e = 0; e < 4; ++e) o[m][f][e] = 0;
    }
  }

  // Scores of fragments from `fragment` on become probabilities, and o relative to the new maximum. Most tiles leave
  // the maxima as they are.
  WEFT_INLINE void to_probabilities(typename Shape::Scores& scores, float to_log2, int fragment = 0) {
    float shrink[kStep][2];
    auto& own = reinterpret_cast<tile::RowState(&)[kStep]>(rows[fragment]);
    if (tile::follow_maxima(own, scores, to_log2, shrink)) {
      WEFT_UNROLL
      for (int m = 0; m < kStep; ++m) WEFT_UNROLL
      for (int f = 0; f < kColumns; ++f) WEFT_UNROLL
      for (int e = 0; e < 4; ++e) o[fragment + m][f][e] *= shrink[m][e / 2];
    }
    tile::exponentiate(own, scores, to_log2);
  }

  // By the warp: whether some element of o is NaN or Inf.
  WEFT_INLINE bool has_non_finite() const {
    float zero = 0;
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int f = 0; f < kColumns; ++f) WEFT_UNROLL
    for (int e = 0; e < 4; ++e) zero += o[m][f][e] * 0.f;
    return ptx::ballot(zero != 0.f) != 0;  // NaN
  }
};

}  // namespace weft::attention::cuda::mma
