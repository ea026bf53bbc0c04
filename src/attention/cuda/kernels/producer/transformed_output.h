// Outputs that a variant's hook changes: a warp puts the outputs of eight of its rows in order, in fp32 where its
// queries lay, and writes one row after another.
#pragma once

#include "attention/cuda/kernels/mma/non_finite.h"
#include "attention/cuda/kernels/producer/shape.h"

namespace weft::attention::cuda::producer {

#if WEFT_SM >= 90
template <class Shape>
class TransformedOutput {
  using S = typename Shape::S;
  using F = typename Shape::F;
  static constexpr int kRun = Shape::kRun, kRows = 8, kStride = Shape::kPadVo;
  static_assert(kRows * kStride * 4 <= 16 * Shape::kPadQk * 2);

 public:
  // Of an item that is not cut. `staging`: where the warp's queries lay.
  WEFT_INLINE TransformedOutput(const Rows<Shape>& rows, const mma::Thread<Shape>& thread,
                                const mma::States<Shape>& states, u8* staging)
      : rows_(rows), thread_(thread), states_(states), staged_(reinterpret_cast<float*>(staging)) {}

  WEFT_INLINE void store() const {
    const Call& call = rows_.call;
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float total = F::kSoftmax ? states_.rows[0].total(half) : 1.f;
      const float factor = total == 0.f ? 0.f : mma::HeadScales<Shape>::of_value(rows_.item) / total;
      const float lse = F::kSoftmax ? tile::lse_of(states_.rows[0].maximum[half], total, rows_.scale()).value : 0.f;
      put(half, factor);
      ptx::warp_sync();
      const int first = thread_.first_row() + kRows * half;
      const int n = rows_.n - first < kRows ? rows_.n - first : kRows;
      if (rows_.job.not_finite != 0) {
        mma::for_non_finite<Shape>(rows_, first, first + n, thread_.lane, 32,
                                   [&](int r, int i, float v) { staged_[(r - first) * kStride + i] += v; });
        ptx::warp_sync();
      }
      WEFT_NO_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const float of_row = ptx::shuffle(lse, 4 * i);
        if (i >= n) continue;
        const FusedRow& row = rows_.row(first + i);
        write_output<S, F>(call, rows_.p, {row.q_row, row.request, row.idx, row.pos, row.head}, staged_ + i * kStride,
                           of_row);
      }
      ptx::warp_sync();
    }
  }

 private:
  WEFT_INLINE void put(int half, float factor) const {
    float* const to = staged_ + thread_.lane / 4 * kStride + kRun * (thread_.lane % 4);
    WEFT_UNROLL
    for (int run = 0; run < Shape::kPadVo / (4 * kRun); ++run) WEFT_UNROLL
    for (int i = 0; i < kRun; ++i) to[4 * kRun * run + i] = states_.output(0, half, run, i) * factor;
  }

  const Rows<Shape>& rows_;
  const mma::Thread<Shape>& thread_;
  const mma::States<Shape>& states_;
  float* const staged_;
};
#endif

}  // namespace weft::attention::cuda::producer
