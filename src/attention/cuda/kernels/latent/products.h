// What the two warpgroups multiply. They take turns with tiles: whose turn it is makes the tile's probabilities, in
// registers for itself and in shared memory for the other, and each multiplies them by its half of the values.
//
//   warpgroup 0:  S0 | softmax 0 | O += P0 V0 | O += P1 V1 | S2 | softmax 2 | O += P2 V2 | ...
//   warpgroup 1:                   O += P0 V0 | S1 | softmax 1 | O += P1 V1 | O += P2 V2 | ...
//
// The other's values come before this one's scores: a tile's place is free, and the next one on its way, as soon as its
// probabilities are there. Sums are relative to a maximum that both know: a tile's is published with its probabilities.
#pragma once

#include "attention/cuda/kernels/latent/shape.h"
#include "attention/cuda/kernels/mma/logits.h"
#include "attention/cuda/kernels/mma/non_finite.h"
#include "attention/cuda/kernels/mma/states.h"

namespace weft::attention::cuda {

#if WEFT_SM >= 90
namespace latent {

template <class Shape>
class Products {
  using F = typename Shape::F;
  using T = typename Shape::T;
  static constexpr int kKeys = Shape::kKeys, kRows = Shape::kRows;
  using Outputs = float[Shape::kOwnVo / 2];

 public:
  WEFT_INLINE Products(const mma::Rows<Shape>& rows, mma::Thread<Shape>& thread, mma::States<Shape>& states)
      : rows_(rows), thread_(thread), states_(states) {}

  // Values that are not finite are left out from now on.
  WEFT_INLINE void leave_out_non_finite() { leaves_out_ = true; }

  // All tiles of the item, into states that are empty.
  WEFT_INLINE void multiply() {
    const int num_tiles = same_in_warp(Shape::shared().walk.num_tiles), group = same_in_warp(thread_.group());
    states_.clear();
    WEFT_NO_UNROLL
    for (int tile = 0; tile < num_tiles; ++tile) {
      thread_.forget();
      if (tile % 2 == group)
        multiply_own(tile);
      else
        multiply_others(tile);
      first_columns(tile).release();
      other_columns(tile).release();
    }
    first_ += static_cast<u32>(num_tiles);
  }

 private:
  WEFT_INLINE void multiply_own(int tile) {
    multiply_keys(tile);
    ptx::wgmma_wait<0>(s_);
    auto& scores = reinterpret_cast<typename Shape::Scores&>(s_);
    mma::Logits<Shape>(rows_, thread_, tile).make(0, scores);
    if constexpr (F::kSoftmax) states_.to_probabilities(scores, to_log2());
    tile::pack_a<T>(p_, s_);
    publish(tile);
    if (leaves_out_) leave_out(tile);
    multiply_values(tile);
    ptx::wgmma_wait<0>(outputs(), p_);
  }
  WEFT_INLINE void multiply_others(int tile) {
    wait(thread_.group() == 0 ? first_columns(tile) : other_columns(tile));
    ptx::named_sync(kProbabilitiesAreThere + tile % 2, Shape::kProductThreads);
    if (leaves_out_) leave_out(tile);
    follow(tile);
    multiply_values_by_others(tile);
    ptx::wgmma_wait<0>(outputs());
  }

  using Walk = tile::StageWalk<Shape::kStages>;
  WEFT_INLINE Walk first_columns(int tile) const {
    return Walk(Shape::shared().first_columns, first_ + static_cast<u32>(tile));
  }
  WEFT_INLINE Walk other_columns(int tile) const {
    return Walk(Shape::shared().other_columns, first_ + static_cast<u32>(tile));
  }
  WEFT_INLINE int stage_of(int tile) const { return first_columns(tile).stage(); }
  WEFT_INLINE static void wait(const Walk& columns) {
    columns.wait();
    ptx::fence_async_shared();  // lanes copied them
  }

  // The first columns while others are still on their way.
  WEFT_INLINE void multiply_keys(int tile) {
    const auto keys = Shape::rows_of(stage_of(tile));
    wait(first_columns(tile));
    ptx::wgmma_fence(s_);
    WEFT_UNROLL
    for (int k = 0; k < Shape::kDimQk; k += 16) {
      if (k == Shape::kOwnVo) {
        wait(other_columns(tile));
        ptx::wgmma_fence();
      }
      tile::multiply_async<T>(s_, Shape::queries().rows(0, k), keys.rows(0, k), k > 0);
    }
    ptx::wgmma_commit();
  }
  // By probabilities of its own in registers, or of the other in shared memory.
  WEFT_INLINE void multiply_values(int tile) {
    const auto values = Shape::rows_of(stage_of(tile));
    ptx::wgmma_fence(outputs(), p_);
    WEFT_UNROLL
    for (int k = 0; k < kKeys; k += 16)
      tile::multiply_async<T>(outputs(), p_[k / 16], values.columns(k, thread_.first_column()), true);
    ptx::wgmma_commit();
  }
  WEFT_INLINE void multiply_values_by_others(int tile) {
    const int stage = stage_of(tile);
    const auto values = Shape::rows_of(stage);
    const auto p = Shape::probabilities_of(stage);
    ptx::wgmma_fence(outputs());
    WEFT_UNROLL
    for (int k = 0; k < kKeys; k += 16)
      tile::multiply_async<T>(outputs(), p.rows(0, k), values.columns(k, thread_.first_column()), true);
    ptx::wgmma_commit();
  }

  // To the other warpgroup: what it multiplies, and what that is relative to.
  WEFT_INLINE void publish(int tile) const {
    const auto to = Shape::probabilities_of(stage_of(tile));
    WEFT_UNROLL
    for (int k = 0; k < kKeys / 16; ++k) WEFT_UNROLL
    for (int e = 0; e < 4; ++e)
      *reinterpret_cast<u32*>(to.chunk(thread_.row(0, e % 2), 2 * k + e / 2) + thread_.column() * 2) = p_[k][e];
    if (F::kSoftmax && thread_.lane % 4 == 0) WEFT_UNROLL
    for (int half = 0; half < 2; ++half)
      Shape::shared().maximum[tile % 2][thread_.row(0, half)] = states_.rows[0].maximum[half];
    ptx::fence_async_shared();
    ptx::named_arrive(kProbabilitiesAreThere + tile % 2, Shape::kProductThreads);
  }
  // What the other one's probabilities are relative to, this one's sums are, too.
  WEFT_INLINE void follow(int tile) {
    if constexpr (F::kSoftmax) {
      tile::RowState& own = states_.rows[0];
      float maximum[2];
      bool grows = false;
      WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        maximum[half] = Shape::shared().maximum[tile % 2][thread_.row(0, half)];
        grows = grows || maximum[half] != own.maximum[half];
      }
      if (ptx::ballot(grows) == 0) return;
      float shrink[1][2];
      WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        shrink[0][half] = tile::shrink_of(own.maximum[half], maximum[half], to_log2());
        own.maximum[half] = maximum[half];
        own.sum[half] *= shrink[0][half];
      }
      scale_outputs(shrink);
    }
  }
  WEFT_INLINE void scale_outputs(const float (&shrink)[1][2]) {
    WEFT_UNROLL
    for (int r = 0; r < Shape::kOwnVo / 2; ++r) outputs()[r] *= shrink[0][r / 2 % 2];
  }

  // Zeros in the place of values that are not finite, in this warpgroup's half of a tile whose keys were multiplied.
  WEFT_INLINE void leave_out(int tile) const {
    const auto values = Shape::rows_of(stage_of(tile));
    constexpr int kColumns = Shape::kOwnVo;
    WEFT_NO_UNROLL
    for (int i = thread_.of_tile(); i < kKeys * kColumns; i += Shape::kLogitThreads) {
      const int column = thread_.first_column() + i % kColumns;
      T* const x = reinterpret_cast<T*>(values.chunk(i / kColumns, column / 8)) + column % 8;
      if (!mma::is_finite(tile::to_float(*x))) x->bits = 0;
    }
    ptx::fence_async_shared();
    ptx::named_sync(kWarpgroupMeets + thread_.group(), Shape::kLogitThreads);
  }

  WEFT_INLINE float to_log2() const { return rows_.scale() * tile::kLog2E; }
  WEFT_INLINE Outputs& outputs() { return reinterpret_cast<Outputs&>(states_.o[0]); }

  const mma::Rows<Shape>& rows_;
  mma::Thread<Shape>& thread_;
  mma::States<Shape>& states_;
  float s_[kKeys / 2];
  u32 p_[kKeys / 16][4];
  u32 first_ = 0;  // stages that were walked before
  bool leaves_out_ = false;
};

}  // namespace latent
#endif

}  // namespace weft::attention::cuda
