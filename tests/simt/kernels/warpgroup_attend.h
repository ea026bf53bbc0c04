// Attention of one head in bf16 by warpgroups: tiles of queries, 64 for each warpgroup, times tiles of keys, which one
// warp of another warpgroup loads two ahead. A warpgroup's scores of the next tile are multiplied while it makes
// probabilities of this one, and warpgroups take turns, so that one multiplies while another has its softmax:
//
//   warpgroup 0   S1 | O0 . softmax 1 . . | S2 | O1 . softmax 2
//   warpgroup 1   . softmax 0 | S1 | O0 . softmax 1 . . | S2 | O1
//
// Which tiles a head has room for, in registers and shared memory: kAttendShapes.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/mbarrier.h"
#include "tile/cuda/ptx/proxy_fence.h"
#include "tile/cuda/ptx/registers.h"
#include "tile/cuda/ptx/tensor_copy.h"
#include "tile/cuda/softmax.h"
#include "tile/cuda/warpgroup.h"

namespace weft {

template <int shape>
class WarpgroupAttend {
  static constexpr AttendShape kShape = kAttendShapes[shape];
  static constexpr int kGroups = kShape.groups, kKeys = kShape.keys, kDimVo = kShape.dim_vo;
  // Of each thread, of those that a CTA's threads begin with.
  static constexpr int kOfLoader = kGroups == 2 ? 24 : 32, kOfOthers = kShape.most_registers();
  static_assert(kShape.registers() <= kOfOthers && kShape.shared_bytes() <= 227 * 1024);
  static constexpr abi::MatrixTile kQueries = kShape.queries(), kKeyTile = kShape.keys_tile(),
                                   kValues = kShape.values();
  // What a stage or the queries wait for.
  struct Barriers {
    u64 queries, keys[2], values[2], no_keys[2], no_values[2];
  };

 public:
  WEFT_INLINE explicit WarpgroupAttend(const WarpgroupAttendArgs& args)
      : args_(args), first_(ptx::cta_index() * kShape.rows()), num_tiles_(tiles_of(args, first_)) {}

  WEFT_INLINE void run() const {
    if (ptx::thread_index() == 0) init();
    ptx::cta_sync();
    if (ptx::warp() >= 4 * kGroups) {
      ptx::decrease_registers<kOfLoader>();
      if (ptx::thread_index() == 128 * kGroups) load();
    } else {
      ptx::increase_registers<kOfOthers>();
      multiply(ptx::warp() / 4);
    }
  }

 private:
  WEFT_INLINE static tile::PanelTile<kQueries> queries() { return {ptx::shared_memory()}; }
  WEFT_INLINE static tile::PanelTile<kKeyTile> keys(int tile) {
    return {ptx::shared_memory() + kQueries.bytes() + tile % 2 * kKeyTile.bytes()};
  }
  WEFT_INLINE static tile::PanelTile<kValues> values(int tile) {
    return {keys(0).data + 2 * kKeyTile.bytes() + tile % 2 * kValues.bytes()};
  }
  WEFT_INLINE static Barriers& barriers() {
    return *reinterpret_cast<Barriers*>(ptx::shared_memory() + kShape.tile_bytes());
  }
  WEFT_INLINE static u32 parity(int tile) { return static_cast<u32>(tile / 2 % 2); }
  WEFT_INLINE static int tiles_of(const WarpgroupAttendArgs& args, int first) {
    int end = args.n;
    const int reach = first + kShape.rows() + args.n - args.num_queries;
    if (args.causal && reach < end) end = reach;
    return end > 0 ? (end + kKeys - 1) / kKeys : 0;
  }

  WEFT_INLINE static void init() {
    Barriers& all = barriers();
    ptx::mbarrier_init(&all.queries, 1);
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(&all.keys[i], 1);
      ptx::mbarrier_init(&all.values[i], 1);
      ptx::mbarrier_init(&all.no_keys[i], kGroups);
      ptx::mbarrier_init(&all.no_values[i], kGroups);
    }
    ptx::fence_mbarrier_init();
  }

  // One thread.
  WEFT_INLINE void load() const {
    Barriers& all = barriers();
    const ptx::CachePolicy once = ptx::evict_first(), often = ptx::evict_last();
    const auto load = [&](const auto& to, const ptx::TensorMap& map, int row, u64* barrier, ptx::CachePolicy policy) {
      ptx::mbarrier_arrive_expect(barrier, to.bytes());
      ptx::tensor_load(to.data, map, {0, row, 0}, barrier, policy);
    };
    load(queries(), args_.q, first_, &all.queries, once);
    for (int tile = 0; tile < num_tiles_; ++tile) {
      ptx::mbarrier_wait(&all.no_keys[tile % 2], parity(tile) ^ 1);
      load(keys(tile), args_.k, tile * kKeys, &all.keys[tile % 2], often);
      ptx::mbarrier_wait(&all.no_values[tile % 2], parity(tile) ^ 1);
      load(values(tile), args_.v, tile * kKeys, &all.values[tile % 2], often);
    }
  }

  using Scores = float[kKeys / 2];
  using Outputs = float[kDimVo / 2];
  using Probabilities = u32[kKeys / 16][4];

  WEFT_INLINE void multiply(int group) const {
    Barriers& all = barriers();
    const bool is_first_thread = ptx::thread_index() % 128 == 0;
    const auto release = [&](u64* barrier) {
      if (is_first_thread) ptx::mbarrier_arrive(barrier);
    };
    // Warpgroup 0 has the first turn; a turn is one warpgroup's to give, and the next one's to wait for.
    const auto wait_for_turn = [&] { ptx::named_sync(1 + group, 256); };
    const auto give_turn = [&] { ptx::named_arrive(1 + (group + 1) % kGroups, 256); };
    if (group == kGroups - 1) give_turn();

    Scores s;
    Outputs o;
    Probabilities p;
    tile::RowState state[1] = {tile::RowState::empty()};
    float shrink[1][2];
    bool shrinks = false;
    const auto multiply_keys = [&](int tile) {
      WEFT_UNROLL
      for (int k = 0; k < kShape.dim_qk; k += 16)
        tile::multiply_async<bf16>(s, queries().rows(64 * group, k), keys(tile).rows(0, k), k > 0);
      ptx::wgmma_commit();
    };
    const auto multiply_values = [&](int tile) {
      if (shrinks && tile > 0) {
        WEFT_UNROLL
        for (int r = 0; r < kDimVo / 2; ++r) o[r] *= shrink[0][r / 2 % 2];
      }
      ptx::mbarrier_wait(&all.values[tile % 2], parity(tile));
      ptx::wgmma_fence(o, p);
      WEFT_UNROLL
      for (int k = 0; k < kKeys; k += 16)
        tile::multiply_async<bf16>(o, p[k / 16], values(tile).columns(k, 0), tile > 0 || k > 0);
      ptx::wgmma_commit();
    };
    const auto make_probabilities = [&](int tile) {
      auto& scores = reinterpret_cast<float(&)[1][kKeys / 8][4]>(s);
      hide(tile, group, s);
      shrinks = tile::follow_maxima(state, scores, args_.sm_scale * tile::kLog2E, shrink);
      tile::exponentiate(state, scores, args_.sm_scale * tile::kLog2E);
    };

    if (num_tiles_ > 0) {
      ptx::mbarrier_wait(&all.queries, 0);
      ptx::mbarrier_wait(&all.keys[0], 0);
      wait_for_turn();
      ptx::wgmma_fence(s);
      multiply_keys(0);
      give_turn();
      ptx::wgmma_wait<0>(s);
      release(&all.no_keys[0]);
      make_probabilities(0);
      tile::pack_a<bf16>(p, s);
    }
    WEFT_NO_UNROLL
    for (int tile = 1; tile < num_tiles_; ++tile) {
      ptx::mbarrier_wait(&all.keys[tile % 2], parity(tile));
      wait_for_turn();
      ptx::wgmma_fence(s);
      multiply_keys(tile);
      multiply_values(tile - 1);
      give_turn();
      ptx::wgmma_wait<1>(s);
      release(&all.no_keys[tile % 2]);
      make_probabilities(tile);
      ptx::finish_before_waiting(state[0].sum[0] + state[0].sum[1]);
      ptx::wgmma_wait<0>(o, p);
      release(&all.no_values[(tile - 1) % 2]);
      tile::pack_a<bf16>(p, s);
    }
    if (num_tiles_ > 0) {
      multiply_values(num_tiles_ - 1);
      ptx::wgmma_wait<0>(o, p);
    }
    store(group, state[0], o);
  }

  // Keys that a row does not see, in the tiles that have any.
  WEFT_INLINE void hide(int tile, int group, Scores& s) const {
    const int key = tile * kKeys, row = first_ + 64 * group + tile::warpgroup_row(0);
    const int reach = args_.n - args_.num_queries;  // the last key of row 0, or 1 before the first
    if (key + kKeys <= args_.n && (!args_.causal || key + kKeys - 1 <= first_ + 64 * group + reach)) return;
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      int end = args_.n;
      if (args_.causal && row + 8 * half + reach + 1 < end) end = row + 8 * half + reach + 1;
      const int left = end - key - tile::warpgroup_column(0);
      WEFT_UNROLL
      for (int f = 0; f < kKeys / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e)
        if (8 * f + e >= left) s[4 * f + 2 * half + e] = ptx::from_bits(0xff800000u);
    }
  }

  WEFT_INLINE void store(int group, const tile::RowState& state, Outputs& o) const {
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = first_ + 64 * group + tile::warpgroup_row(2 * half);
      const float total = state.total(half), share = total == 0.f ? 0.f : 1.f / total;
      if (row >= args_.num_queries) continue;
      WEFT_UNROLL
      for (int f = 0; f < kDimVo / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e)
        args_.o[row * kDimVo + 8 * f + tile::warpgroup_column(0) + e] =
            total == 0.f ? 0.f : o[4 * f + 2 * half + e] * share;
      if (ptx::lane() % 4 == 0) args_.lse[row] = tile::lse_of(state.maximum[half], total, args_.sm_scale).value;
    }
  }

  const WarpgroupAttendArgs& args_;
  const int first_, num_tiles_;
};

}  // namespace weft

// A kernel of its own for each shape: WEFT_WARPGROUP_ATTEND(0) is weft_warpgroup_attend_0.
#define WEFT_WARPGROUP_ATTEND(i)                   \
  WEFT_KERNEL(weft::kAttendShapes[i].threads(), 1) \
  void weft_warpgroup_attend_##i(WEFT_PARAM weft::WarpgroupAttendArgs args) { weft::WarpgroupAttend<i>(args).run(); }
