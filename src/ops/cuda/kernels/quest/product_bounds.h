// Bounds of pages by products of warps, of queries and summaries in bf16 (from sm_90 on): of q's positive elements with
// the greatest and of its negative ones with the least.
//
//   D [16 pages, 8 rows of queries] = high [16, dim] * max(q, 0)^T + low [16, dim] * min(q, 0)^T
//
// 0 times infinity is no number, and no product of the bound's: a tile with such a sum is done again by multiply-adds.
#pragma once

#include "ops/cuda/kernels/quest/keys.h"
#include "ops/cuda/kernels/quest/lists.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/fragment.h"
#include "tile/cuda/ptx/cp_async.h"
#include "tile/cuda/reduce.h"

namespace weft::ops {

#if WEFT_SM >= 90
// kDim: dims, a multiple of 16. A warp has every eighth tile of 16 pages of its CTA's, which it
// copies to a ring of its own, some tiles ahead.
template <int kDim>
class ProductBounds {
  static constexpr int kPages = kProductPages, kWarps = kQuestThreads / 32, kStages = product_stages(kDim);
  static constexpr int kSteps = kDim / 16, kChunks = kDim / 8;
  static_assert(kDim % 16 == 0 && kStages > 0 && kPages == 16);
  using Tile = tile::SharedTile<kDim>;

 public:
  struct Shared {
    u8 tiles[kWarps][kStages][2][Tile::bytes(kPages)];  // least and greatest
  };
  static_assert(sizeof(Shared) == product_shared_bytes(kDim));

  WEFT_INLINE ProductBounds(const ChooseArgs& args, const List& list, int kv_head, Shared& shared)
      : args_(args), list_(list), kv_head_(kv_head), shared_(shared), rows_(args.requests.qo_len * args.group) {}

  // All threads: keys of the pages of this CTA's tiles.
  WEFT_INLINE void find(const ListKeys& keys) const {
    const ListKeys::Share share = keys.share_of((list_.of.competing + kPages - 1) / kPages);
    const int begin = share.begin + ptx::warp();
    PageIds ids = look_up(begin);
    WEFT_NO_UNROLL
    for (int stage = 0; stage < kStages; ++stage) {
      if (begin + stage * kWarps < share.end) fetch(begin + stage * kWarps, stage, ids);
      ptx::cp_async_commit();
    }
    Queries queries = load_queries(0);
    ListKeys::wait_for_others();
    WEFT_NO_UNROLL
    for (int tile = begin, stage = 0; tile < share.end; tile += kWarps) {
      ptx::cp_async_wait<kStages - 1>();
      ptx::warp_sync();
      float most[2] = {ptx::from_bits(0xff800000u), ptx::from_bits(0xff800000u)};
      bool is_number = true;
      WEFT_NO_UNROLL
      for (int first = 0; first < rows_; first += 8) {
        if (rows_ > 8) queries = load_queries(first);
        is_number = multiply(stage, queries, most) && is_number;
      }
      if (ptx::ballot(!is_number) != 0) add_up(stage, most);
      WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int page = tile * kPages + tile::fragment_row(half);
        const float bound = ptx::sum(most[half], 0.f);  // never -0
        if (page < list_.of.competing) keys.put<4>(page, tile::ordered_key(bound), ptx::lane() % 4);
      }
      ptx::warp_sync();  // the tile was read
      if (tile + kStages * kWarps < share.end) fetch(tile + kStages * kWarps, stage, ids);
      ptx::cp_async_commit();
      stage = stage + 1 < kStages ? stage + 1 : 0;
    }
  }

 private:
  // Of this warp's tiles from `first` on: those of one with the first 16 lanes, of the next with the others.
  struct PageIds {
    int first, own;
  };
  // 8 rows of queries as B: their positive elements and their negative ones, 0 for the others.
  struct Queries {
    u32 positive[kSteps][2], negative[kSteps][2];
  };

  WEFT_INLINE Tile side(int stage, int which) const { return {shared_.tiles[ptx::warp()][stage][which]}; }
  WEFT_INLINE Tile low(int stage) const { return side(stage, 0); }
  WEFT_INLINE Tile high(int stage) const { return side(stage, 1); }

  // Behind the last page it again.
  WEFT_INLINE PageIds look_up(int tile) const {
    const int last = list_.of.competing - 1;
    const int page = (tile + ptx::lane() / 16 * kWarps) * kPages + ptx::lane() % 16;
    return {tile, page_id(args_.requests, list_.of.request, page < last ? page : last)};
  }
  // Tiles ascend from call to call.
  WEFT_INLINE void fetch(int tile, int stage, PageIds& ids) const {
    if (tile >= ids.first + 2 * kWarps) ids = look_up(tile);
    const CardSummaries& from = args_.summaries;
    const bf16* const least = static_cast<const bf16*>(from.low) + kv_head_ * from.low_head_stride;
    const bf16* const most = static_cast<const bf16*>(from.high) + kv_head_ * from.high_head_stride;
    const int first_lane = tile > ids.first ? 16 : 0;
    WEFT_UNROLL
    for (int i = 0; i < kChunks / 2; ++i) {
      const int at = i * 32 + ptx::lane(), page = at / kChunks, chunk = at % kChunks;
      const u64 id = ptx::shuffle(static_cast<u32>(ids.own), first_lane + page);
      ptx::cp_async_16(low(stage).chunk(page, chunk), least + id * static_cast<u32>(from.low_page_stride) + 8 * chunk);
      ptx::cp_async_16(high(stage).chunk(page, chunk), most + id * static_cast<u32>(from.high_page_stride) + 8 * chunk);
    }
  }

  // Rows from `first` on; in the place of one that is not there the last one.
  WEFT_INLINE Queries load_queries(int first) const {
    Queries queries;
    const int row = first + ptx::lane() / 4;
    const bf16* const q = query_of<bf16>(args_, list_, kv_head_, row < rows_ ? row : rows_ - 1);
    WEFT_UNROLL
    for (int step = 0; step < kSteps; ++step) WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int channel = 16 * step + 8 * half + ptx::lane() % 4 * 2;
      const u32 pair = *reinterpret_cast<const u32*>(q + channel);
      const u32 is_negative = (pair >> 15 & 0x10001u) * 0xffffu;
      queries.positive[step][half] = pair & ~is_negative;
      queries.negative[step][half] = pair & is_negative;
    }
    return queries;
  }

  // The largest bounds of pages lane / 4 and lane / 4 + 8 so far, in each of four lanes; whether all sums are numbers.
  WEFT_INLINE bool multiply(int stage, const Queries& queries, float (&most)[2]) const {
    float d[2][4] = {};
    WEFT_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      u32 a[4];
      tile::load_a(a, high(stage), 0, 16 * step);
      tile::multiply<bf16>(d[0], a, queries.positive[step][0], queries.positive[step][1]);
      tile::load_a(a, low(stage), 0, 16 * step);
      tile::multiply<bf16>(d[1], a, queries.negative[step][0], queries.negative[step][1]);
    }
    bool is_number = true;
    WEFT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const float bound = ptx::sum(d[0][e], d[1][e]);
      is_number = is_number && bound == bound;
      most[e / 2] = ptx::larger(most[e / 2], bound);
    }
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) most[half] = tile::lane_max<4>(most[half]);
    return is_number;
  }

  // The same of all rows, one product after another; NaN counts as infinite.
  WEFT_INLINE void add_up(int stage, float (&most)[2]) const {
    WEFT_NO_UNROLL
    for (int page = 0; page < kPages; ++page) {
      float of_page = ptx::from_bits(0xff800000u);
      WEFT_NO_UNROLL
      for (int row = 0; row < rows_; ++row) {
        const bf16* const q = query_of<bf16>(args_, list_, kv_head_, row);
        float sum = 0.f;
        WEFT_NO_UNROLL
        for (int i = ptx::lane(); i < kDim; i += 32) {
          const float x = tile::to_float(q[i]);
          const u8* const chunk = (x < 0.f ? low(stage) : high(stage)).chunk(page, i / 8);
          sum = ptx::multiply_add(x, tile::to_float(reinterpret_cast<const bf16*>(chunk)[i % 8]), sum);
        }
        sum = tile::lane_sum(sum);
        of_page = ptx::larger(of_page, sum != sum ? ptx::from_bits(0x7f800000u) : sum);
      }
      if (tile::fragment_row(0) == page) most[0] = of_page;
      if (tile::fragment_row(1) == page) most[1] = of_page;
    }
  }

  const ChooseArgs& args_;
  const List& list_;
  const int kv_head_;
  Shared& shared_;
  const int rows_;  // queries of the group
};
#endif

}  // namespace weft::ops
