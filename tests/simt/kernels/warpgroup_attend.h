// Attention in bf16 by warpgroups: tiles of queries of a head, 64 for each warpgroup, times tiles of keys, which one
// warp of another warpgroup loads ahead, over all items of the CTA. A warpgroup's scores of the next tile are
// multiplied while it makes probabilities of this one, and warpgroups take turns, so that one multiplies while another
// has its softmax:
//
//   warpgroup 0   S1 | O0 . softmax 1 . . | S2 | O1 . softmax 2
//   warpgroup 1   . softmax 0 | S1 | O0 . softmax 1 . . | S2 | O1
//
// Which tiles a head has room for, in registers and shared memory: kAttendShapes. CTAs take items one after another,
// those with the most keys first.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/cp_async.h"
#include "tile/cuda/ptx/proxy_fence.h"
#include "tile/cuda/ptx/registers.h"
#include "tile/cuda/ptx/tensor_copy.h"
#include "tile/cuda/softmax.h"
#include "tile/cuda/stages.h"
#include "tile/cuda/warpgroup.h"

namespace weft {

template <int shape, bool kGathers>
class WarpgroupAttend {
  static constexpr AttendShape kShape = kAttendShapes[shape];
  static constexpr int kGroups = kShape.groups, kKeys = kShape.keys, kDimVo = kShape.dim_vo;
  // Of each thread, of those that a CTA's threads begin with.
  static constexpr int kOfLoader = kGroups == 3 ? 32
                                   : kGathers   ? 40
                                                : 24,
                       kOfOthers = kShape.most_registers() - (kGroups == 2 && kGathers ? 8 : 0);
  static_assert(kShape.registers() <= kOfOthers && kShape.shared_bytes() <= 227 * 1024);
  static constexpr abi::MatrixTile kQueries = kShape.queries(), kKeyTile = kShape.keys_tile(),
                                   kValues = kShape.values();
  struct Barriers {
    tile::StageBarriers<1> queries;
    tile::StageBarriers<2> keys, values;
  };
  // Queries from `first` on of a head, and the tiles of keys that some of them sees.
  struct Item {
    int index, first, num_tiles;
  };

 public:
  WEFT_INLINE explicit WarpgroupAttend(const WarpgroupAttendArgs& args) : args_(args) {}

  WEFT_INLINE void run() const {
    if (ptx::thread_index() == 0) {
      barriers().queries.init(1, kGroups);
      barriers().keys.init(kGathers ? 128 : 1, kGroups);
      barriers().values.init(kGathers ? 128 : 1, kGroups);
      ptx::fence_mbarrier_init();
    }
    ptx::cta_sync();
    if (ptx::warp() >= 4 * kGroups) {
      ptx::decrease_registers<kOfLoader>();
      if constexpr (kGathers)
        gather();
      else if (ptx::thread_index() == 128 * kGroups)
        load();
    } else {
      ptx::increase_registers<kOfOthers>();
      multiply();
    }
  }

 private:
  WEFT_INLINE static tile::PanelTile<kQueries> queries() { return {ptx::shared_memory()}; }
  WEFT_INLINE static tile::PanelTile<kKeyTile> keys(int stage) {
    return {ptx::shared_memory() + kQueries.bytes() + stage * kKeyTile.bytes()};
  }
  WEFT_INLINE static tile::PanelTile<kValues> values(int stage) { return {keys(2).data + stage * kValues.bytes()}; }
  WEFT_INLINE static Barriers& barriers() {
    return *reinterpret_cast<Barriers*>(ptx::shared_memory() + kShape.tile_bytes());
  }

  // Found again where it is asked for, instead of taking a register.
  WEFT_INLINE int head_of(const Item& item) const { return item.index % args_.num_heads; }
  // Calls work(item) for the CTA's items.
  template <class Work>
  WEFT_INLINE void for_each_item(const Work& work) const {
    const int per_head = (args_.num_queries + kShape.rows() - 1) / kShape.rows();
    WEFT_NO_UNROLL
    for (int i = ptx::cta_index(); i < per_head * args_.num_heads; i += ptx::num_ctas()) {
      const int first = (per_head - 1 - i / args_.num_heads) * kShape.rows();
      const int reach = first + kShape.rows() + args_.n - args_.num_queries;
      const int end = args_.causal && reach < args_.n ? reach : args_.n;
      work(Item{i, first, end > 0 ? (end + kKeys - 1) / kKeys : 0});
    }
  }

  // Boxes, by one thread.
  WEFT_INLINE void load() const {
    tile::StageWalk<1> of_queries(barriers().queries);
    tile::StageWalk<2> of_keys(barriers().keys), of_values(barriers().values);
    const ptx::CachePolicy once = ptx::evict_first(), often = ptx::evict_last();
    const auto fill = [&](auto& walk, const auto& to, const ptx::TensorMap& map, int head, int row,
                          ptx::CachePolicy policy) {
      u64* const full = walk.fill(to.bytes());
      ptx::tensor_load(to.data, map, {0, row, 0, head}, full, policy);
      walk.advance();
    };
    for_each_item([&](const Item& item) {
      if (item.num_tiles == 0) return;
      const int head = head_of(item);
      fill(of_queries, queries(), args_.q, head, item.first, once);
      WEFT_NO_UNROLL
      for (int tile = 0; tile < item.num_tiles; ++tile) {
        fill(of_keys, keys(of_keys.stage()), args_.k, head, tile * kKeys, often);
        fill(of_values, values(of_values.stage()), args_.v, head, tile * kKeys, often);
      }
    });
  }

  // Rows from anywhere, by the threads of a warpgroup: what was fetched before is there when the next is on its way.
  WEFT_INLINE void gather() const {
    tile::StageWalk<1> of_queries(barriers().queries);
    tile::StageWalk<2> of_keys(barriers().keys), of_values(barriers().values), keys_there = of_keys,
                                                                               values_there = of_values;
    const int thread = ptx::thread_index() - 128 * kGroups;
    bool is_first = true;
    for_each_item([&](const Item& item) {
      if (item.num_tiles == 0) return;
      const int head = head_of(item);
      if (thread == 0)
        ptx::tensor_load(queries().data, args_.q, {0, item.first, 0, head}, of_queries.fill(queries().bytes()),
                         ptx::evict_first());
      of_queries.advance();
      WEFT_NO_UNROLL
      for (int tile = 0; tile < item.num_tiles; ++tile) {
        of_keys.wait_for_room();
        fetch<kShape.dim_qk>(keys(of_keys.stage()), args_.k_rows, head, tile * kKeys, thread);
        of_keys.advance();
        if (!is_first) tell<1>(values_there);
        is_first = false;
        of_values.wait_for_room();
        fetch<kDimVo>(values(of_values.stage()), args_.v_rows, head, tile * kKeys, thread);
        of_values.advance();
        tell<1>(keys_there);
      }
    });
    if (!is_first) tell<0>(values_there);
  }
  // Of keys from `first` on; those that are not there become zeros.
  template <int kDim, abi::MatrixTile kTile>
  WEFT_INLINE void fetch(const tile::PanelTile<kTile>& to, const void* rows, int head, int first, int thread) const {
    constexpr int kChunks = kDim / 8;
    WEFT_NO_UNROLL
    for (int i = thread; i < kKeys * kChunks; i += 128) {
      const int key = first + i / kChunks, chunk = i % kChunks;
      const bool is_there = key < args_.n;
      const i64 row = static_cast<i64>(head) * args_.n + (is_there ? args_.row_of_key[key] : 0);
      ptx::cp_async_16(to.chunk(i / kChunks, chunk), static_cast<const u16*>(rows) + row * kDim + 8 * chunk,
                       is_there ? 16 : 0);
    }
    ptx::cp_async_commit();
  }
  template <int pending>
  WEFT_INLINE static void tell(tile::StageWalk<2>& there) {
    ptx::cp_async_wait<pending>();
    there.filled();
    there.advance();
  }

  using Scores = float[kKeys / 2];
  using Outputs = float[kDimVo / 2];
  using Probabilities = u32[kKeys / 16][4];

  WEFT_INLINE void multiply() const {
    tile::StageWalk<1> of_queries(barriers().queries);
    tile::StageWalk<2> of_keys(barriers().keys), of_values(barriers().values);
    using Turns = tile::Turns<kGroups>;
    Turns::begin();
    Scores s;
    Outputs o;
    Probabilities p;
    tile::RowState state[1];
    float shrink[1][2];
    bool shrinks = false;
    const auto multiply_keys = [&] {
      const int group = ptx::opaque(ptx::thread_index()) / 128;
      WEFT_UNROLL
      for (int k = 0; k < kShape.dim_qk; k += 16)
        tile::multiply_async<bf16>(s, queries().rows(64 * group, k), keys(of_keys.stage()).rows(0, k), k > 0);
      ptx::wgmma_commit();
    };
    const auto release_keys = [&] {
      of_keys.release();
      of_keys.advance();
    };
    const auto multiply_values = [&](bool is_first) {
      if (shrinks && !is_first) {
        WEFT_UNROLL
        for (int r = 0; r < kDimVo / 2; ++r) o[r] *= shrink[0][r / 2 % 2];
      }
      of_values.wait();
      ptx::wgmma_fence(o, p);
      WEFT_UNROLL
      for (int k = 0; k < kKeys; k += 16)
        tile::multiply_async<bf16>(o, p[k / 16], values(of_values.stage()).columns(k, 0), !is_first || k > 0);
      ptx::wgmma_commit();
    };
    const auto release_values = [&] {
      of_values.release();
      of_values.advance();
    };
    const auto make_probabilities = [&](const Item& item, int tile) {
      auto& scores = reinterpret_cast<float(&)[1][kKeys / 8][4]>(s);
      hide(item, tile, s);
      shrinks = tile::follow_maxima(state, scores, args_.sm_scale * tile::kLog2E, shrink);
      tile::exponentiate(state, scores, args_.sm_scale * tile::kLog2E);
    };

    for_each_item([&](const Item& item) {
      state[0] = tile::RowState::empty();
      if (item.num_tiles == 0) return store(item, state[0], o);
      of_queries.wait();
      of_keys.wait();
      Turns::wait();
      ptx::wgmma_fence(s);
      multiply_keys();
      Turns::give();
      ptx::wgmma_wait<0>(s);
      release_keys();
      make_probabilities(item, 0);
      tile::pack_a<bf16>(p, s);
      WEFT_NO_UNROLL
      for (int tile = 1; tile < item.num_tiles; ++tile) {
        of_keys.wait();
        Turns::wait();
        ptx::wgmma_fence(s);
        multiply_keys();
        multiply_values(tile == 1);
        Turns::give();
        ptx::wgmma_wait<1>(s);
        release_keys();
        make_probabilities(item, tile);
        ptx::finish_before_waiting(state[0].sum[0] + state[0].sum[1]);
        ptx::wgmma_wait<0>(o, p);
        release_values();
        tile::pack_a<bf16>(p, s);
      }
      of_queries.release();
      of_queries.advance();
      multiply_values(item.num_tiles == 1);
      ptx::wgmma_wait<0>(o, p);
      release_values();
      store(item, state[0], o);
    });
  }

  // Keys that a row does not see, in the tiles that have any.
  WEFT_INLINE void hide(const Item& item, int tile, Scores& s) const {
    const int thread = ptx::opaque(ptx::thread_index()), group_first = item.first + thread / 128 * 64;
    const int key = tile * kKeys, row = group_first + tile::warpgroup_row(thread, 0);
    const int reach = args_.n - args_.num_queries;  // the last key of row 0, or 1 before the first
    if (key + kKeys <= args_.n && (!args_.causal || key + kKeys - 1 <= group_first + reach)) return;
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      int end = args_.n;
      if (args_.causal && row + 8 * half + reach + 1 < end) end = row + 8 * half + reach + 1;
      const int left = end - key - tile::warpgroup_column(thread, 0);
      WEFT_UNROLL
      for (int f = 0; f < kKeys / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e)
        if (8 * f + e >= left) s[4 * f + 2 * half + e] = ptx::from_bits(0xff800000u);
    }
  }

  WEFT_INLINE void store(const Item& item, const tile::RowState& state, const Outputs& o) const {
    const int thread = ptx::opaque(ptx::thread_index());
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = item.first + thread / 128 * 64 + tile::warpgroup_row(thread, 2 * half);
      const float total = state.total(half), share = total == 0.f ? 0.f : 1.f / total;
      if (row >= args_.num_queries) continue;
      const int head = head_of(item);
      float* const to = args_.o + (static_cast<i64>(head) * args_.num_queries + row) * kDimVo;
      WEFT_UNROLL
      for (int f = 0; f < kDimVo / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e)
        to[8 * f + tile::warpgroup_column(thread, 0) + e] = total == 0.f ? 0.f : o[4 * f + 2 * half + e] * share;
      if (ptx::lane() % 4 == 0)
        args_.lse[head * args_.num_queries + row] = tile::lse_of(state.maximum[half], total, args_.sm_scale).value;
    }
  }

  const WarpgroupAttendArgs& args_;
};

}  // namespace weft

// A kernel of its own for each shape and loader: WEFT_WARPGROUP_ATTEND(0) is weft_warpgroup_attend_0, whose keys and
// values are boxes; those of WEFT_WARPGROUP_GATHER(0) lie anywhere.
#define WEFT_WARPGROUP_ATTEND(i)                                              \
  WEFT_KERNEL(weft::kAttendShapes[i].threads(), 1)                            \
  void weft_warpgroup_attend_##i(WEFT_PARAM weft::WarpgroupAttendArgs args) { \
    weft::WarpgroupAttend<i, false>(args).run();                              \
  }
#define WEFT_WARPGROUP_GATHER(i)                                              \
  WEFT_KERNEL(weft::kAttendShapes[i].threads(), 1)                            \
  void weft_warpgroup_gather_##i(WEFT_PARAM weft::WarpgroupAttendArgs args) { \
    weft::WarpgroupAttend<i, true>(args).run();                               \
  }
