// Behind the logits, where a step wants the id of each row's greatest one alone: each worker leaves the best of its own
// columns, and the row's owner takes the best of those.
#pragma once

#include "decode/fused/cuda/kernels/product.h"
#include "tile/cuda/greatest.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
// The head is a worker's in whole bands.
template <class M, class Shape>
class GreedyIds {
  static_assert(M::kPanels == 1);

 public:
  WEFT_INLINE explicit GreedyIds(const Worker<Shape>& worker) : worker_(worker) {}

  // Of each row, by warps; behind a barrier that follows what wrote the logits.
  WEFT_INLINE void find_own() const {
    const Share<Shape> share(worker_, Product::of<M>(0, 0, 0, true));
    const int begin = share.tiles.first_band() * 16, bands_end = begin + share.tiles.num_bands() * 16;
    const int end = bands_end < M::kRows ? bands_end : M::kRows;
    WEFT_NO_UNROLL
    for (int row = 0; row < worker_.args.rows; ++row) {
      const float* const logits = worker_.args.logits + static_cast<i64>(row) * M::kRows;
      tile::Greatest own;
      WEFT_NO_UNROLL
      for (int i = begin + worker_.thread; i < end; i += kConsumers) own.take(logits[i], i);
      own = tile::lane_greatest(own);
      if (ptx::lane() == 0) of_warp(row, worker_.thread / 32) = own;
    }
  }

  // Of each row, to its owner; behind another barrier.
  WEFT_INLINE void leave_own(u32 tag) const {
    const int row = worker_.thread;
    if (row >= worker_.args.rows) return;
    tile::Greatest own = of_warp(row, 0);
    for (int warp = 1; warp < kConsumerWarps; ++warp) own.take(of_warp(row, warp));
    const float both[2] = {own.value, ptx::from_bits(static_cast<u32>(own.index))};
    tile::TaggedEdge::write(worker_.args.cells + Shape::kBest + cell(row, worker_.worker), both, tag);
  }

  // The ids of rows that the worker owns. False: what others leave did not come.
  WEFT_INLINE bool write_ids(u32 tag) const {
    const int warp = worker_.thread / 32;
    const int row = worker_.worker + warp * ptx::num_ctas();  // by warps, where there are fewer workers than rows
    if (row >= worker_.args.rows) return true;
    tile::Greatest all;
    for (int first = 0; first < ptx::num_ctas(); first += 32) {
      const int from = first + ptx::lane();
      const int at[1] = {from < ptx::num_ctas() ? cell(row, from) : -1};
      float both[1][2];
      if (!worker_.edge().read(worker_.args.cells + Shape::kBest, at, tag, both)) return false;
      tile::Greatest of;
      of.value = both[0][0];
      of.index = at[0] < 0 ? -1 : static_cast<int>(ptx::to_bits(both[0][1]));
      all.take(of);
    }
    all = tile::lane_greatest(all);
    if (ptx::lane() == 0) worker_.args.ids[row] = all.index;
    return true;
  }

 private:
  // Two cells, value and id.
  WEFT_INLINE static int cell(int row, int worker) { return 2 * (row * ptx::num_ctas() + worker); }
  WEFT_INLINE tile::Greatest& of_warp(int row, int warp) const {
    return reinterpret_cast<tile::Greatest*>(worker_.parts())[row * kConsumerWarps + warp];
  }

  const Worker<Shape> worker_;
};
#endif

}  // namespace weft::decode::fused
