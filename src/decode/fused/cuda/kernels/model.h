// A step of a model in one kernel: what the generated text calls, phase by phase (decode/fused/cuda/model_text.h). A
// launch is cooperative; a CTA is a worker (worker.h).
//
//   Worker<Shape> worker(args);
//   worker.init();
//   if (worker.copies()) {
//     Copies<Shape> copies(worker);                        // a warp: weights, keys and values of all phases
//     ... copies.weights_of_layer(product, layer) && copies.keys_and_values(...) && ...
//     copies.end();
//   } else {
//     Step<Shape> step(worker);                            // the others: one phase after another
//     ... step.multiply<Weights>(product) && step.attention<Qkv>(...) && step.merge(...) && ...
//   }
#pragma once

#include "decode/fused/cuda/kernels/attention.h"
#include "decode/fused/cuda/kernels/copies.h"
#include "decode/fused/cuda/kernels/greedy.h"
#include "decode/fused/cuda/kernels/inputs.h"
#include "decode/fused/cuda/kernels/merge.h"
#include "decode/fused/cuda/kernels/near.h"
#include "decode/fused/cuda/kernels/product.h"
#include "decode/fused/cuda/kernels/reductions.h"
#include "tile/cuda/quantised_tiles.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
// Behind logits, where a step wants no more than ids. A function of its own, as a step has no register to spare: as a
// part of its caller it would cost phases before it some.
template <class M, class Shape>
WEFT_NO_INLINE void choose_ids(const ModelArgs& args) {
  const Worker<Shape> worker(args);
  const GreedyIds<M, Shape> ids(worker);
  ptx::named_sync(1, kConsumers);  // logits are written, partial sums were read
  ids.find_own();
  ptx::named_sync(1, kConsumers);
  ids.leave_own(worker.tag_of(Shape::kPhases));
  if (!ids.write_ids(worker.tag_of(Shape::kPhases))) worker.report(StuckAt::edge, Shape::kPhases);
}

template <class Shape>
class Step {
 public:
  WEFT_INLINE explicit Step(const Worker<Shape>& worker)
      : worker_(worker),
        consumers_(worker),
        inputs_(worker),
        reductions_(worker),
        ring_(worker.ring(), worker.thread / 32, kConsumerWarps, worker.args.limit_ns) {
    // Rows that a step does not have are numbers all the same.
    for (int i = worker.thread; i < Shape::kSizes.rows * worker.kLayout.ldx / 2; i += kConsumers)
      reinterpret_cast<u32*>(worker.x(0))[i] = 0;
    ptx::named_sync(1, kConsumers);
    stamp(kBegun);
  }

  // Where the vectors of a layer begin.
  WEFT_INLINE const float* vectors_of(int layer) const { return worker_.args.vectors + layer * Shape::kVectors; }
  // The norm of the residual that a layer leaves: the next layer's, at `offset` of its vectors, or the last one.
  WEFT_INLINE const float* norm_behind(int layer, int offset) const {
    return layer + 1 < Shape::kLayers ? vectors_of(layer + 1) + offset : worker_.args.output_norm;
  }
  WEFT_INLINE bool wants_logits() const { return worker_.args.wants_logits; }

  // What a product multiplies: the embedding, normed, or rows that others have left.
  template <class E>
  WEFT_INLINE void embedded(const Product& of, float scale, const float* norm) {
    inputs_.template embedded<E>(of, scale, norm);
  }
  WEFT_INLINE void rows(const Product& of) {
    if (!inputs_.rows(of, last_tag())) give_up(StuckAt::edge);
  }

  // Each is a phase, and false where a wait has given up. A product of a layer, whose weights are of one of its types:
  template <class... Weights>
  WEFT_INLINE bool multiply(const Product& of) {
    return multiply_into<Weights...>(of, SumsOf{*this, of.sums});
  }
  // The last one: its sums are logits.
  template <class M>
  WEFT_INLINE bool logits(float soft_cap) {
    constexpr Product of = Product::of<M>(0, 0, Shape::kNormed, true);
    rows(of);
    return multiply_into<typename M::Weights>(of, Logits<M>{worker_.args, soft_cap});
  }

  // What becomes of sums of M (reductions.h).
  template <class M>
  WEFT_INLINE bool squares_of(const float* bias) {
    return ends_reduction(reductions_.template squares<M>(bias, last_tag(), worker_.tag_of(phase_)));
  }
  template <class M>
  WEFT_INLINE bool add(const float* bias, const float* norm) {
    return ends_reduction(reductions_.template added<M>(bias, norm, last_tag(), worker_.tag_of(phase_)));
  }
  WEFT_INLINE bool add_normed(const float* post_norm, const float* norm) {
    return ends_reduction(reductions_.added_normed(post_norm, norm, last_tag(), worker_.tag_of(phase_)));
  }
  template <class M>
  WEFT_INLINE bool gate() {
    return ends_reduction(reductions_.template gated<M>(last_tag(), worker_.tag_of(phase_)));
  }

  // Heads of items, which all warps make; then items, by a warp each.
  template <class Qkv>
  WEFT_INLINE bool attention(int layer, int kind, const float* bias, const float* q_norm, const float* k_norm) {
    if (worker_.thread == 0) worker_.ring().begin(static_cast<u32>(phase_));
    const ModelArgs& args = worker_.args;
    const KindTables& tables = args.kinds[kind];
    AttendArgs attend = cache_args(args, layer);
    attend.heads = {.first_slot = args.matrices[Qkv::kIndex].first_slot,
                    .panels = Qkv::kPanels,
                    .bands = Qkv::kBands,
                    .rows = Shape::kSizes.rows,
                    .num_qo_heads = Shape::kHeads,
                    .num_kv_heads = Shape::kKvHeads,
                    .bias = bias,
                    .q_norm = q_norm,
                    .k_norm = k_norm,
                    .eps = Shape::kNormEps,
                    .cos = tables.cos,
                    .sin = tables.sin,
                    .pairs = tables.pairs,
                    .halves = Shape::kTurnsHalves};
    attend.scale = Shape::kScale, attend.soft_cap = Shape::kSoftCap;
    attend.window = tables.window;
    const Near<Shape> near(worker_, kind);
    const int warp = worker_.thread / 32;
    using Units = HeadUnits<Shape::kHeadDim>;
    // Pieces of a head's columns that are on their way at once, as registers allow.
    constexpr int kPieces = Qkv::kPanels * Qkv::kPieces > 2 && Units::kOfLane == 1 ? 4 : 2;
    int count = 0;  // of items, until the round's end
    for (int round = 0; round < near.num_rounds(); ++round) {
      if (round > 0 && !consumers_.sync()) return false;
      const RoundOfWorker of = near.round(round);
      count = of.end_item;
      const auto at = [&](int i) { return near.head(attend.heads, of, i); };
      if (!make_round<bf16, Shape::kHeadDim, kPieces>(
              attend, worker_.edge(), PhaseCells<const u64>{args.cells + Qkv::kCells, last_tag()}, warp * Units::kSide,
              of.num_heads, kConsumerWarps * Units::kSide, at, worker_.heads()))
        give_up(StuckAt::edge);
      if (!consumers_.sync()) return false;
      if (round == 0) stamp(kReady);
      for (; ring_.number() < before_ + count; ring_.release()) {
        if (!ring_.wait()) {
          give_up(StuckAt::copy);
          continue;
        }
        const AttendItem<bf16, Shape::kHeadDim, Shape::kChunk, tile::TaggedEdge> item(
            attend, near.item(ring_.number() - before_), ring_.data(), worker_.heads());
        item.attend({args.cells + Shape::kStates, worker_.tag_of(phase_)});
      }
    }
    // The merge writes where sums of the product were read.
    if (near.num_rounds() == 0 && !consumers_.sync()) return false;
    before_ += count;
    return ends_phase();
  }

  // States of items become what attention gives, cells of 16 columns by kMergeShares warps each.
  WEFT_INLINE bool merge(int kind) {
    const ModelArgs& args = worker_.args;
    const KindTables& tables = args.kinds[kind];
    const MergeArgs merge{.state_indptr = tables.state_indptr,
                          .states = tables.states,
                          .rows = Shape::kSizes.rows,
                          .num_qo_heads = Shape::kHeads,
                          .num_kv_heads = Shape::kKvHeads,
                          .head_dim = Shape::kHeadDim,
                          .scale = Shape::kScale,
                          .soft_cap = Shape::kSoftCap};
    const Near<Shape> near(worker_, kind);
    const int warp = worker_.thread / 32;
    MergedPair* const merged = reinterpret_cast<MergedPair*>(worker_.parts());
    for (int begin = 0, at_once = 0; begin < near.num_merged(); begin += at_once) {
      at_once = near.merged_at_once(begin);
      for (int i = warp; i < near.num_tasks(begin); i += kConsumerWarps) {
        const MergeTask of = near.task(begin, i);
        MergedPair pair;
        if (!merge_share(merge, worker_.edge(), PhaseCells<const u64>{args.cells + Shape::kStates, last_tag()},
                         near.list(merge, begin, i, of), of.head, of.part, {of.share, kMergeShares}, pair))
          give_up(StuckAt::edge);
        if (ptx::lane() < 8) merged[(i % at_once * kMergeShares + of.share) * 8 + ptx::lane()] = pair;
      }
      if (!consumers_.sync()) return false;
      if (begin == 0) stamp(kReady);
      for (int i = warp; i < at_once; i += kConsumerWarps) {
        const MergeTask of = near.cell(begin + i, 0);
        write_cell(merge, of.row, of.head, of.part, merged + i * kMergeShares * 8, kMergeShares,
                   [&](int row, int column, const float(&two)[2]) {
                     constexpr int kCols = Shape::kHeads * Shape::kHeadDim;
                     tile::TaggedEdge::write_bits(
                         args.cells + Shape::kAttended + static_cast<i64>(row) * row_pairs(kCols) + column / 2,
                         tile::pack<bf16>(two[0], two[1]), worker_.tag_of(phase_));
                   });
      }
      if (begin + at_once < near.num_merged() && !consumers_.sync()) return false;
    }
    return ends_phase();
  }

 private:
  // What a product's sums become.
  struct SumsOf {
    const Step& step;
    i64 cells;
    WEFT_INLINE void operator()(const Share<Shape>& share, int band, int cell, float sum) const {
      tile::TaggedEdge::write(
          step.worker_.args.cells + cells + static_cast<i64>(share.first_slot + band) * Shape::kSizes.rows * 16 + cell,
          sum, step.worker_.tag_of(step.phase_));
    }
  };
  template <class M>
  struct Logits {
    const ModelArgs& args;
    float soft_cap;  // 0: none
    WEFT_INLINE void operator()(const Share<Shape>& share, int band, int cell, float sum) const {
      const int row = cell / 16, column = (share.tiles.first_band() + band) * 16 + cell % 16;
      if (row >= args.rows || column >= M::kRows) return;
      args.logits[static_cast<i64>(row) * M::kRows + column] = soft_cap > 0.f ? ops::capped(sum, soft_cap) : sum;
    }
  };

  WEFT_INLINE void stamp(Stamp what) const {
    if (worker_.thread == 0) worker_.stamp(phase_, what);
  }
  WEFT_INLINE bool ends_phase() {
    stamp(kLeft);
    if (++phase_ < Shape::kPhases) stamp(kBegun);
    return true;
  }
  WEFT_INLINE void give_up(StuckAt at) const { consumers_.give_up(at, phase_); }
  WEFT_INLINE u32 last_tag() const { return worker_.tag_of(phase_ - 1); }

  WEFT_INLINE bool ends_reduction(bool are_there) {
    if (!are_there) give_up(StuckAt::edge);
    return ends_phase();
  }

  // Behind the input, whatever it is.
  template <class... Weights, class Write>
  WEFT_INLINE bool multiply_into(const Product& of, const Write& write) {
    if (!consumers_.sync()) return false;
    if (worker_.thread == 0) worker_.ring().begin(static_cast<u32>(phase_));
    stamp(kReady);
    if (of.is_normed)
      for (int row = worker_.thread / 32; row < worker_.args.rows; row += kConsumerWarps) {
        const float factor = inputs_.norm_factor(row);
        if (ptx::lane() == 0) worker_.factor(row) = factor;
      }
    const Share<Shape> share(worker_, of);
    for (int round = 0; round < share.tiles.num_rounds(); ++round) {
      for (; ring_.number() < before_ + share.tiles.end_entry(round); ring_.release()) {
        // What it multiplies where a copy did not come is no number; behind the barrier all end.
        if (!ring_.wait()) give_up(StuckAt::copy);
        multiply_entry<0, Weights...>(of, share.tiles, round);
      }
      if (!consumers_.sync()) return false;
      tile::finish_round(share.tiles, round, worker_.thread, kConsumers, worker_.parts(),
                         [&](int band, int cell, float sum) {
                           write(share, band, cell, of.is_normed ? sum * worker_.factor(cell / 16) : sum);
                         });
    }
    stamp(kMultiplied);
    before_ += share.tiles.num_entries();
    return ends_phase();
  }

  // By the type of its weights, the kType-th and following ones of a layer.
  template <int kType, class First, class... Others>
  WEFT_INLINE void multiply_entry(const Product& of, const tile::MatvecShare& share, int round) const {
    if (sizeof...(Others) == 0 || of.type == kType)
      tile::multiply_entry<First, Shape::kSizes.rows>(share, round, ring_.number() - before_, ring_.data(),
                                                      worker_.x(0), worker_.kLayout.ldx, worker_.parts());
    else if constexpr (sizeof...(Others) > 0)
      multiply_entry<kType + 1, Others...>(of, share, round);
  }

  const Worker<Shape> worker_;
  Consumers<Shape> consumers_;
  Inputs<Shape> inputs_;
  Reductions<Shape> reductions_;
  tile::RingConsumer ring_;
  int phase_ = 0;
  int before_ = 0;  // entries of phases before
};
#endif

}  // namespace weft::decode::fused
