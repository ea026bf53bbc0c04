// Softmax(q k^T) v of one head, for 64 queries a CTA: the pieces of tile/cuda put together, nothing tuned. Keys from
// `n` on do not exist; every query sees all others, or, causal, those up to its own place from the end.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/copy.h"
#include "tile/cuda/fragment.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/dependent_launch.h"
#include "tile/cuda/softmax.h"

namespace weft {

template <class T, int kDim>
struct Attend {
  static constexpr int kQueries = 64, kKeys = 32, kThreads = 128;
  using Tile = tile::SharedTile<kDim>;
  static constexpr int kShared = Tile::bytes(kQueries) + 2 * 2 * Tile::bytes(kKeys);

  WEFT_INLINE static void run(const AttendArgs& args) {
    ptx::wait_for_previous_kernel();
    u8* const shared = ptx::shared_memory();
    const int thread = ptx::thread_index(), first_query = ptx::cta_index() * kQueries, queries = args.num_queries,
              n = args.n;
    const T* const q = static_cast<const T*>(args.q);
    const Tile queries_tile{shared};
    const auto stage = [&](int step, int operand) {
      return Tile{shared + Tile::bytes(kQueries) + (step % 2 * 2 + operand) * Tile::bytes(kKeys)};
    };
    const auto fetch = [&](int step) {
      for (int operand = 0; operand < 2; ++operand) {
        const T* const memory = static_cast<const T*>(operand == 0 ? args.k : args.v);
        tile::copy_rows<kKeys, kThreads>(stage(step, operand), thread, memory, [&](int row) {
          const int key = step * kKeys + row;
          return key < n ? memory + static_cast<i64>(key) * kDim : nullptr;
        });
      }
      ptx::cp_async_commit();
    };
    tile::copy_rows<kQueries, kThreads>(queries_tile, thread, q, [&](int row) {
      return first_query + row < queries ? q + static_cast<i64>(first_query + row) * kDim : nullptr;
    });
    fetch(0);
    float o[kDim / 8][4] = {};
    tile::RowState state[1] = {tile::RowState::empty()};
    const int steps = (n + kKeys - 1) / kKeys, row0 = first_query + 16 * ptx::warp();
    for (int step = 0; step < steps; ++step) {
      if (step + 1 < steps) fetch(step + 1);
      if (step + 1 < steps)
        ptx::cp_async_wait<1>();
      else
        ptx::cp_async_wait<0>();
      ptx::cta_sync();
      float s[1][kKeys / 8][4] = {};
      WEFT_UNROLL
      for (int k = 0; k < kDim; k += 16) {
        u32 a[4];
        tile::load_a(a, queries_tile, 16 * ptx::warp(), k);
        WEFT_UNROLL
        for (int key = 0; key < kKeys; key += 16) {
          u32 b[4];
          tile::load_b(b, stage(step, 0), key, k);
          tile::multiply<T>(s[0][key / 8], a, b[0], b[1]);
          tile::multiply<T>(s[0][key / 8 + 1], a, b[2], b[3]);
        }
      }
      WEFT_UNROLL
      for (int f = 0; f < kKeys / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int key = step * kKeys + 8 * f + tile::fragment_column() + e % 2;
        const int last = args.causal ? row0 + tile::fragment_row(e / 2) + n - queries : n - 1;
        if (key >= n || key > last) s[0][f][e] = ptx::from_bits(0xff800000u);
      }
      float shrink[1][2];
      if (tile::follow_maxima(state, s, args.sm_scale * tile::kLog2E, shrink)) {
        WEFT_UNROLL
        for (int f = 0; f < kDim / 8; ++f) WEFT_UNROLL
        for (int e = 0; e < 4; ++e) o[f][e] *= shrink[0][e / 2];
      }
      tile::exponentiate(state, s, args.sm_scale * tile::kLog2E);
      WEFT_UNROLL
      for (int key = 0; key < kKeys; key += 16) {
        // Two fragments of a product are the halves of the next one's left operand.
        const int f = key / 8;
        const u32 p[4] = {tile::pack<T>(s[0][f][0], s[0][f][1]), tile::pack<T>(s[0][f][2], s[0][f][3]),
                          tile::pack<T>(s[0][f + 1][0], s[0][f + 1][1]), tile::pack<T>(s[0][f + 1][2], s[0][f + 1][3])};
        WEFT_UNROLL
        for (int d = 0; d < kDim; d += 16) {
          u32 b[4];
          tile::load_b_rows(b, stage(step, 1), key, d);
          tile::multiply<T>(o[d / 8], p, b[0], b[1]);
          tile::multiply<T>(o[d / 8 + 1], p, b[2], b[3]);
        }
      }
      ptx::cta_sync();  // the next fetch writes where this step was read
    }
    ptx::cp_async_wait<0>();  // with no key at all, the queries'
    ptx::allow_next_kernel();
    WEFT_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = row0 + tile::fragment_row(r);
      const float total = state[0].total(r), inverse = total > 0.f ? 1.f / total : 0.f;
      if (row >= queries) continue;
      if (ptx::lane() % 4 == 0) args.lse[row] = tile::lse_of(state[0].maximum[r], total, args.sm_scale).value;
      WEFT_UNROLL
      for (int f = 0; f < kDim / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e)
        args.o[static_cast<i64>(row) * kDim + 8 * f + tile::fragment_column() + e] = o[f][2 * r + e] * inverse;
    }
  }
};

}  // namespace weft

WEFT_KERNEL(128, 1) void weft_attend_fp16(WEFT_PARAM weft::AttendArgs args) { weft::Attend<weft::fp16, 80>::run(args); }
#if WEFT_SM >= 80
WEFT_KERNEL(128, 1) void weft_attend_bf16(WEFT_PARAM weft::AttendArgs args) { weft::Attend<weft::bf16, 64>::run(args); }
#endif
