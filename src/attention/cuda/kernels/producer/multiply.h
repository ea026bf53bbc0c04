// The warpgroups that multiply: each has 64 rows of a job, and walks the same stages of keys and values. Scores of the
// next tile are multiplied while this one's become probabilities, and warpgroups take turns, so that one multiplies
// while another has its softmax.
#pragma once

#include "attention/cuda/kernels/mma/non_finite.h"
#include "attention/cuda/kernels/mma/store.h"
#include "attention/cuda/kernels/producer/transformed_output.h"

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
  static constexpr bool kTransformsOutputs = Shape::H::output_transform;

 public:
  WEFT_INLINE Multiply(const Call& call, const P& p) : call_(call), p_(p) {}

  WEFT_INLINE void run() {
    Turns::begin();
    u32 number = 0;
    WEFT_NO_UNROLL
    while (true) {
      const tile::StageWalk<Shape::kJobs> jobs(Shape::shared().of_jobs, number);
      jobs.wait();
      const Job& job = Shape::shared().jobs[jobs.stage()];
      if (job.n == 0) break;
      number = attend(job) + 1;
    }
  }

 private:
  // Returns the job's number, read again at the end: kept, it would take a register.
  WEFT_INLINE u32 attend(const Job& job) {
    const Rows rows(call_, p_, job);
    thread_.forget();
    wait_for<Shape::kQueriesAsCopied>(queries(job));
    if (64 * group() < job.n) {
      states_.clear();
      if (job.walk.num_tiles > 0) multiply(rows, job.walk.num_tiles);
      store(rows);
    } else {
      pass(job.walk.num_tiles);
    }
    queries(job).leave();
    // Outputs that a hook changes have them already.
    if (job.not_finite != 0 && (!kTransformsOutputs || job.item.partial >= 0))
      mma::add_non_finite<Shape>(rows, thread_, mma::Stored<Shape, Rows>(rows));
    if (job.ends_item && job.item.partial >= 0) {
      sync_threads<S>();
      arrive<S, F>(call_, p_, job.item);
    }
    const u32 number = job.number;
    tile::StageWalk<Shape::kJobs>(Shape::shared().of_jobs, number).leave();
    return number;
  }

  WEFT_INLINE void store(const Rows& rows) const {
    const Job& job = rows.job;
    if constexpr (kTransformsOutputs) {
      u8* const own = Shape::queries(queries(job).stage(), 0).data + thread_.first_row() * Shape::kPadQk * 2;
      if (job.item.partial < 0) return TransformedOutput<Shape>(rows, thread_, states_, own).store();
    }
    mma::Store<Shape, Rows>(rows, thread_, states_).store();
  }

  WEFT_INLINE void multiply(const Rows& rows, int num_tiles) {
    const auto first = own_queries(rows.job);
    wait_for<Shape::kKeysAsCopied>(keys_);
    Turns::wait();
    ptx::wgmma_fence(scores());
    multiply_keys(first);
    Turns::give();
    ptx::wgmma_wait<0>(scores());
    keys_.release();
    keys_.advance();
    make_logits<false>(rows, rows.tile(0), rows.is_seen_by_all(rows.tile(0)));
    // Whether all rows see the next tile is asked among exponentials, where it takes no time; of lists that is not
    // known before its keys have come.
    bool all_see = !S::kBlockSparse && rows.is_seen_by_all(rows.tile(1));
    exponentiate(rows, rows.tile(0));
    tile::pack_a<T>(probabilities_, scores());
    WEFT_NO_UNROLL
    for (int step = 1; step < num_tiles; ++step) {
      thread_.forget();
      const auto own = own_queries(rows.job);
      wait_for<Shape::kKeysAsCopied>(keys_);
      Turns::wait();
      ptx::wgmma_fence(scores());
      multiply_keys(own);
      multiply_values();
      Turns::give();
      if constexpr (S::kBlockSparse) all_see = rows.is_seen_by_all(rows.tile(step));
      ptx::wgmma_wait<1>(scores());
      keys_.release();
      make_logits<true>(rows, rows.tile(step), all_see);
      // Products begin as those issued before them end: when the maxima are known the values were multiplied, so this
      // wait is short, and their stage is free for the next ones.
      ptx::wgmma_wait<0>(outputs(), probabilities_);
      values().release();
      keys_.advance();
      all_see = !S::kBlockSparse && rows.is_seen_by_all(rows.tile(step + 1));
      exponentiate(rows, rows.tile(step));
      tile::pack_a<T>(probabilities_, scores());
    }
    thread_.forget();
    multiply_values();
    ptx::wgmma_wait<0>(outputs(), probabilities_);
    values().release();
  }
  // A warpgroup that has no rows of the job: takes its turns and releases its stages.
  WEFT_INLINE void pass(int num_tiles) {
    WEFT_NO_UNROLL
    for (int tile = 0; tile < num_tiles; ++tile) {
      keys_.wait();
      Turns::wait();
      Turns::give();
      keys_.release();
      keys_.advance();
      values().wait();
      values().release();
    }
  }

  template <bool kAsCopied, class Walk>
  WEFT_INLINE static void wait_for(const Walk& stage) {
    stage.wait();
    if constexpr (kAsCopied) ptx::fence_async_shared();
  }
  WEFT_INLINE typename Shape::Queries own_queries(const Job& job) const {
    return Shape::queries(queries(job).stage(), group());
  }
  WEFT_INLINE void multiply_keys(const typename Shape::Queries& own) {
    const auto keys = Shape::keys_of(keys_.stage());
    WEFT_UNROLL
    for (int k = 0; k < Shape::kPadQk; k += 16)
      tile::multiply_async<T>(scores(), own.rows(0, k), keys.rows(0, k), k > 0);
    ptx::wgmma_commit();
  }
  // Of the tile whose probabilities were made last.
  WEFT_INLINE void multiply_values() {
    if (shrinks_) {
      WEFT_UNROLL
      for (int r = 0; r < Shape::kPadVo / 2; ++r) outputs()[r] *= shrink_[0][r / 2 % 2];
    }
    wait_for<Shape::kValuesAsCopied>(values());
    const auto tile = Shape::values_of(values().stage());
    ptx::wgmma_fence(outputs(), probabilities_);
    WEFT_UNROLL
    for (int k = 0; k < kKeys; k += 16)
      tile::multiply_async<T>(outputs(), probabilities_[k / 16], tile.columns(k, 0), true);
    ptx::wgmma_commit();
  }
  // Tiles behind the first one, which is the last of the keys, are whole.
  template <bool kIsWhole>
  WEFT_INLINE void make_logits(const Rows& rows, int tile, bool all_see) {
    // Mostly scores are logits as they are, and nothing is read of the tile.
    const bool are_logits = !Shape::kFunctor && !Shape::kTokenScales && all_see && !rows.scales_logits();
    if (!are_logits) mma::Logits<Shape, Rows, kIsWhole>(rows, thread_, tile).make(0, scores_, 0, all_see);
    if constexpr (F::kSoftmax)
      shrinks_ = tile::follow_maxima(states_.rows, scores_, rows.scale() * tile::kLog2E, shrink_);
  }
  WEFT_INLINE void exponentiate(const Rows& rows, int tile) {
    if constexpr (F::kSoftmax) tile::exponentiate(states_.rows, scores_, rows.scale() * tile::kLog2E);
    if constexpr (Shape::kTokenScales)
      mma::multiply_by_tokens<Shape>(thread_, rows.token_scales(tile).of_value, 0, scores_);
  }

  // A job has one tile of queries, and values are multiplied a tile behind keys.
  WEFT_INLINE static tile::StageWalk<Shape::kQueryStages> queries(const Job& job) {
    return tile::StageWalk<Shape::kQueryStages>(Shape::shared().of_queries, job.number);
  }
  WEFT_INLINE tile::StageWalk<kStages> values() const {
    return tile::StageWalk<kStages>(Shape::shared().of_values, keys_.number() - 1);
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
  tile::StageWalk<kStages> keys_{Shape::shared().of_keys};
};
#endif

}  // namespace weft::attention::cuda::producer
