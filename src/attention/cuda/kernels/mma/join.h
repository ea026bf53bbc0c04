// States meet in shared memory, those of the warps that share a row as one, and leave from there.
#pragma once

#include "attention/cuda/kernels/mma/rows.h"
#include "attention/cuda/kernels/mma/states.h"

namespace weft::attention::cuda::mma {

template <class Shape>
class Join {
  using F = typename Shape::F;
  static constexpr int kWarpsN = Shape::kWarpsN, kOutStride = Shape::kOutStride;

 public:
  WEFT_INLINE Join(const Rows<Shape>& rows, const Thread<Shape>& thread) : rows_(rows), thread_(thread) {}

  WEFT_INLINE void join(const States<Shape>& states) const {
    auto& s = Shape::shared();
    float* const own = Shape::out() + thread_.warp_n() * Shape::kRows * kOutStride;
    WEFT_UNROLL
    for (int m = 0; m < Shape::kFragments; ++m) WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int r = thread_.row(m, half);
      if constexpr (F::kSoftmax) {
        const float total = states.rows[m].total(half);
        if (thread_.lane % 4 == 0) {
          s.maximum[thread_.warp_n()][r] = states.rows[m].maximum[half];
          s.sum[thread_.warp_n()][r] = total;
        }
      }
      if (r >= rows_.n) continue;
      constexpr int kRun = Shape::kRun;
      float* const to = own + r * kOutStride + kRun * (thread_.lane % 4);
      WEFT_UNROLL
      for (int run = 0; run < States<Shape>::kRuns; ++run) WEFT_UNROLL
      for (int i = 0; i < kRun; ++i) to[4 * kRun * run + i] = states.output(m, half, run, i);
    }
    ptx::cta_sync();
    WEFT_NO_UNROLL
    for (int r = thread_.warp; r < rows_.n; r += Shape::kWarps) join_row(r);
    ptx::cta_sync();
  }

  WEFT_INLINE void add(int r, int i, float v) const { Shape::out()[r * kOutStride + i] += v; }

  // To the output or to the item's partial.
  WEFT_INLINE void write() const {
    const Call& call = rows_.call;
    const auto& s = Shape::shared();
    const PartialStates partial = partial_of(call, rows_.item);
    WEFT_NO_UNROLL
    for (int r = thread_.warp; r < rows_.n; r += Shape::kWarps)
      write_state<typename Shape::S, F>(call, rows_.p, partial, s.rows[r], (rows_.first + r) / call.group_size,
                                        Shape::out() + r * kOutStride, {s.lse[r], s.sum[0][r]});
  }

 private:
  // By one warp.
  WEFT_INLINE void join_row(int r) const {
    auto& s = Shape::shared();
    float weight[kWarpsN], total = 0, maximum = -infinity();
    if constexpr (F::kSoftmax) {
      WEFT_UNROLL
      for (int w = 0; w < kWarpsN; ++w) maximum = ptx::larger(maximum, s.maximum[w][r]);
      WEFT_UNROLL
      for (int w = 0; w < kWarpsN; ++w) {
        weight[w] = tile::shrink_of(s.maximum[w][r], maximum, rows_.scale() * tile::kLog2E);
        total += weight[w] * s.sum[w][r];
      }
    }
    const float of_value = HeadScales<Shape>::of_value(rows_.item);
    const float factor = !F::kSoftmax ? of_value : total == 0.f ? 0.f : of_value / total;
    float* const of_lane = Shape::out() + r * kOutStride + thread_.lane;
    WEFT_UNROLL
    for (int i = 0; i < (Shape::kDimVo + 31) / 32; ++i) {
      if (Shape::kDimVo % 32 != 0 && 32 * i + thread_.lane >= Shape::kDimVo) continue;
      float sum = 0;
      WEFT_UNROLL
      for (int w = 0; w < kWarpsN; ++w)
        sum += (F::kSoftmax ? weight[w] : 1.f) * of_lane[w * Shape::kRows * kOutStride + 32 * i];
      of_lane[32 * i] = sum * factor;
    }
    ptx::warp_sync();  // all lanes have the sums
    if (thread_.lane != 0) return;
    const tile::Lse lse = F::kSoftmax ? tile::lse_of(maximum, total, rows_.scale()) : tile::Lse{};
    s.lse[r] = lse.value;
    s.sum[0][r] = lse.rest;
  }

  const Rows<Shape>& rows_;
  const Thread<Shape>& thread_;
};

}  // namespace weft::attention::cuda::mma
