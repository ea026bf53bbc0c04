// What a worker's warps begin attention and its merge with, in shared memory once a launch.
//
//   Near<Shape>::fill_all(worker);                     // all threads, before a barrier of them
//   const Near<Shape> near(worker, kind);
//   for (int round = 0; round < near.num_rounds(); ++round) near.round(round) ... near.head(of, i) ... near.item(i)
//   near.list(...)
#pragma once

#include "decode/fused/cuda/kernels/merge.h"
#include "decode/fused/cuda/kernels/worker.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
// A worker's round: heads [first_head, first_head + num_heads) of the step's, and the worker's items up to end_item.
struct RoundOfWorker {
  int index, num_heads, first_head, end_item;
};

// Which row of a worker's cells a warp merges, and which share of its states.
struct MergeTask {
  int row, head, part, share;
};

template <class Shape>
class Near {
  static constexpr int kSlots = near_slots(Shape::kSizes), kStride = Shape::kHeadDim / 16 + 1;
  static constexpr int kParts = Shape::kHeadDim / 16, kCells = Shape::kHeads * kParts;

 public:
  WEFT_INLINE Near(const Worker<Shape>& worker, int kind)
      : worker_(worker), tables_(worker.args.kinds[kind]), near_(*worker.near(kind)) {}

  // Of all kinds.
  WEFT_INLINE static void fill_all(const Worker<Shape>& worker) {
    WEFT_NO_UNROLL
    for (int kind = 0; kind < Shape::kSizes.kinds; ++kind) Near(worker, kind).fill();
  }
  WEFT_INLINE void fill() const {
    const int warp = worker_.thread / 32, lane = ptx::lane();
    if (warp >= kConsumerWarps) return;
    const int first_round = tables_.round_indptr[worker_.worker];
    const int num_rounds = tables_.round_indptr[worker_.worker + 1] - first_round;
    const CardRound first = tables_.rounds[first_round], end = tables_.rounds[first_round + (num_rounds > 0 ? 1 : 0)];
    const int num_items = end.item - first.item, num_heads = end.head - first.head;
    if (worker_.thread == 0) near_.num_items = num_items, near_.num_heads = num_heads, near_.num_rounds = num_rounds;
    if (lane == 0 && first.item + warp < tables_.worker_indptr[worker_.worker + 1])
      near_.items[warp] = tables_.items[first.item + warp];
    if (warp < num_heads) {
      const CardHead head = tables_.heads[first.head + warp];
      if (lane == 0) near_.heads[warp] = head;
      const int* const slots = worker_.args.matrices[0].first_slot + head.head * kParts;
      for (int i = lane; i < kSlots; i += 32) near_slots_of(warp)[i] = slots[i / kStride * kBands + i % kStride];
    }
    if (warp >= num_tasks(0)) return;
    const MergeTask task = this->task(0, warp);
    const int list = task.row * Shape::kKvHeads + task.head / (Shape::kHeads / Shape::kKvHeads);
    const int begin = tables_.state_indptr[list], count = tables_.state_indptr[list + 1] - begin;
    if (lane == 0) near_.lists[warp] = {begin, count};
    if (lane < kNear && kNear * task.share + lane < count)
      near_.states[warp][lane] = tables_.states[begin + kNear * task.share + lane];
  }

  WEFT_INLINE int num_rounds() const { return near_.num_rounds; }
  WEFT_INLINE RoundOfWorker round(int index) const {
    if (index == 0) return {0, near_.num_heads, 0, near_.num_items};
    const CardRound* const of = tables_.rounds + tables_.round_indptr[worker_.worker] + index;
    return {index, of[1].head - of[0].head, of[0].head, of[1].item - tables_.worker_indptr[worker_.worker]};
  }
  // Of the worker.
  WEFT_INLINE const CardItem& item(int i) const {
    return i < kConsumerWarps ? near_.items[i] : tables_.items[tables_.worker_indptr[worker_.worker] + i];
  }
  // Of the round.
  WEFT_INLINE PlacedHead head(const HeadArgs& args, const RoundOfWorker& of, int i) const {
    if (of.index == 0 && i < kConsumerWarps) return {&near_.heads[i], near_slots_of(i), kStride};
    const int first = of.index == 0 ? tables_.rounds[tables_.round_indptr[worker_.worker]].head : of.first_head;
    return placed_head(args, tables_.heads + first + i, Shape::kHeadDim);
  }

  // The worker's cells of what is attended, row by row each: as many at once as there is room for, of all rows.
  WEFT_INLINE int num_merged() const { return (first_cell(1) - first_cell(0)) * worker_.args.rows; }
  WEFT_INLINE int merged_at_once(int first) const {
    const int most = Worker<Shape>::kLayout.merged_cells * worker_.args.rows, left = num_merged() - first;
    return left < most ? left : most;
  }
  // First shares come first, as short lists have no others.
  WEFT_INLINE int num_tasks(int first) const { return merged_at_once(first) * kMergeShares; }
  WEFT_INLINE MergeTask task(int first, int i) const {
    const int at_once = merged_at_once(first);
    return cell(first + i % at_once, i / at_once);
  }
  WEFT_INLINE MergeTask cell(int i, int share) const {
    const int rows = worker_.args.rows, cell = first_cell(0) + i / rows;
    return {i % rows, cell / kParts, cell % kParts, share};
  }
  WEFT_INLINE StateList list(const MergeArgs& args, int first, int i, const MergeTask& task) const {
    const int of_cell = i % merged_at_once(first);  // first shares come first: the cell's list is that warp's
    if (first > 0 || of_cell >= kConsumerWarps) return states_of(args, task.row, task.head);
    const NearTables::List own = near_.lists[of_cell];
    return {args.states + own.begin, own.count, i < kConsumerWarps ? near_.states[i] : nullptr};
  }

 private:
  static constexpr int kBands = (Shape::kHeads + 2 * Shape::kKvHeads) * kParts;
  // Of a worker behind this one.
  WEFT_INLINE int first_cell(int behind) const { return worker_.share_of(kCells, behind); }
  WEFT_INLINE int* near_slots_of(int head) const { return reinterpret_cast<int*>(&near_ + 1) + head * kSlots; }

  const Worker<Shape> worker_;
  const KindTables& tables_;
  NearTables& near_;
};
#endif

}  // namespace weft::decode::fused
