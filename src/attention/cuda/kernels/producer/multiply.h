// The warpgroups that multiply: each has 64 rows of a job, and walks the same stages of keys and values. Scores of the
// next tile are multiplied while this one's become probabilities, and warpgroups take turns, so that one multiplies
// while another has its softmax.
#pragma once

#include "attention/cuda/kernels/mma/non_finite.h"
#include "attention/cuda/kernels/mma/store.h"
#include "attention/cuda/kernels/producer/shape.h"

namespace weft::attention::cuda::producer {

#if WEFT_SM >= 90
template <class Shape>
class Multiply {
  using S = typename Shape::S;
  using F = typename Shape::F;
  using P = typename F::P;
  using T = typename Shape::T;
  using Job = typename Shape::Job;
  using Rows = producer::Rows<Shape>;
  using Turns = tile::Turns<Shape::kGroups>;
  using Scores = float[Shape::kKeys / 2];
  using Outputs = float[Shape::kPadVo / 2];
  static constexpr int kKeys = Shape::kKeys, kStages = Shape::kStages;

 public:
  WEFT_INLINE Multiply(const Call& call, const P& p) : call_(call), p_(p) {}

  WEFT_INLINE void run() {
    Turns::begin();
    WEFT_NO_UNROLL
    while (true) {
      jobs_.wait();
      const Job& job = Shape::shared().jobs[jobs_.stage()];
      if (job.n == 0) break;
      attend(job);
    }
  }

 private:
  WEFT_INLINE void attend(const Job& job) {
    const Rows rows(call_, p_, job);
    thread_.forget();
    queries_.wait();
    if (64 * group() < job.n) {
      states_.clear();
      if (job.walk.num_tiles > 0) multiply(rows, job.walk.num_tiles);
      u8* const staging =
          Shape::queries(queries_.stage(), 0).data + thread_.first_row() * Shape::kPadQk * 2;  // its own queries
      mma::Store<Shape, Rows>(rows, thread_, states_, staging).store();
    } else {
      pass(job.walk.num_tiles);
    }
    queries_.leave();
    queries_.advance();
    if (job.not_finite != 0) mma::add_non_finite<Shape>(rows, thread_, mma::Stored<Shape, Rows>(rows));
    if (job.ends_item && job.item.partial >= 0) {
      sync_threads<S>();
      arrive<S, F>(call_, p_, job.item);
    }
    jobs_.leave();
    jobs_.advance();
  }

  WEFT_INLINE void multiply(const Rows& rows, int num_tiles) {
    keys_.wait();
    Turns::wait();
    ptx::wgmma_fence(scores());
    multiply_keys();
    Turns::give();
    ptx::wgmma_wait<0>(scores());
    release(keys_);
    make_logits(rows, rows.tile(0), is_seen_by_all(rows, rows.tile(0)));
    exponentiate<0>(rows);
    exponentiate<1>(rows);
    tile::pack_a<T>(probabilities_, scores());
    WEFT_NO_UNROLL
    for (int step = 1; step < num_tiles; ++step) {
      thread_.forget();
      keys_.wait();
      Turns::wait();
      ptx::wgmma_fence(scores());
      multiply_keys();
      multiply_values();
      Turns::give();
      const bool all_see = is_seen_by_all(rows, rows.tile(step));
      ptx::wgmma_wait<1>(scores());
      release(keys_);
      make_logits(rows, rows.tile(step), all_see);
      // Values are given back when half of the exponentials are taken: so much later they have been multiplied, and the
      // next ones come for so much longer.
      exponentiate<0>(rows);
      if constexpr (F::kSoftmax) ptx::finish_before_waiting(states_.rows[0].sum[0] + states_.rows[0].sum[1]);
      ptx::wgmma_wait<0>(outputs(), probabilities_, scores());
      release(values_);
      exponentiate<1>(rows);
      tile::pack_a<T>(probabilities_, scores());
    }
    thread_.forget();
    multiply_values();
    ptx::wgmma_wait<0>(outputs(), probabilities_);
    release(values_);
  }
  // The tiles of rows that others have.
  WEFT_INLINE void pass(int num_tiles) {
    WEFT_NO_UNROLL
    for (int tile = 0; tile < num_tiles; ++tile) {
      keys_.wait();
      Turns::wait();
      Turns::give();
      release(keys_);
      values_.wait();
      release(values_);
    }
  }

  WEFT_INLINE static void release(tile::StageWalk<kStages>& stage) {
    stage.release();
    stage.advance();
  }
  WEFT_INLINE void multiply_keys() {
    const auto queries = Shape::queries(queries_.stage(), group());
    const auto keys = Shape::keys_of(keys_.stage());
    WEFT_UNROLL
    for (int k = 0; k < Shape::kPadQk; k += 16)
      tile::multiply_async<T>(scores(), queries.rows(0, k), keys.rows(0, k), k > 0);
    ptx::wgmma_commit();
  }
  // Of the tile whose probabilities were made last.
  WEFT_INLINE void multiply_values() {
    if (shrinks_) {
      WEFT_UNROLL
      for (int r = 0; r < Shape::kPadVo / 2; ++r) outputs()[r] *= shrink_[0][r / 2 % 2];
    }
    values_.wait();
    const auto values = Shape::values_of(values_.stage());
    ptx::wgmma_fence(outputs(), probabilities_);
    WEFT_UNROLL
    for (int k = 0; k < kKeys; k += 16)
      tile::multiply_async<T>(outputs(), probabilities_[k / 16], values.columns(k, 0), true);
    ptx::wgmma_commit();
  }
  // Of a tile. Asked before its scores are there, it takes none of their time.
  WEFT_INLINE bool is_seen_by_all(const Rows& rows, int tile) const {
    return mma::Logits<Shape, Rows>(rows, thread_, tile).are_seen_by_all();
  }
  WEFT_INLINE void make_logits(const Rows& rows, int tile, bool all_see) {
    mma::Logits<Shape, Rows>(rows, thread_, tile).make(0, scores_, 0, all_see);
    if constexpr (F::kSoftmax)
      shrinks_ = tile::follow_maxima(states_.rows, scores_, rows.scale() * tile::kLog2E, shrink_);
  }
  // Of one half of the keys.
  template <int half>
  WEFT_INLINE void exponentiate(const Rows& rows) {
    if constexpr (!F::kSoftmax) return;
    constexpr int kColumns = kKeys / 8, kFirst = kColumns / 2, kOfHalf = half == 0 ? kFirst : kColumns - kFirst;
    auto& scores = reinterpret_cast<float(&)[1][kOfHalf][4]>(scores_[0][half * kFirst]);
    tile::exponentiate(states_.rows, scores, rows.scale() * tile::kLog2E);
  }

  WEFT_INLINE Scores& scores() { return reinterpret_cast<Scores&>(scores_); }
  WEFT_INLINE Outputs& outputs() { return reinterpret_cast<Outputs&>(states_.o); }
  WEFT_INLINE int group() const { return thread_.warp / 4; }

  const Call& call_;
  const P& p_;
  mma::Thread<Shape> thread_;
  mma::States<Shape> states_;
  typename Shape::Scores scores_;
  u32 probabilities_[kKeys / 16][4];
  // By what the outputs shrink before the next values are added.
  float shrink_[1][2];
  bool shrinks_ = false;
  tile::StageWalk<Shape::kJobs> jobs_{Shape::shared().of_jobs};
  tile::StageWalk<Shape::kQueryStages> queries_{Shape::shared().of_queries};
  tile::StageWalk<kStages> keys_{Shape::shared().of_keys}, values_{Shape::shared().of_values};
};
#endif

}  // namespace weft::attention::cuda::producer
