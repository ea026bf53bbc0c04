// A product of bf16 matrices by warpgroups: tiles of 64 x 128, K in steps of 64 through two stages, which one warp
// fills by boxes of tensors while a warpgroup multiplies. What lies beyond m, n and k comes as zeros.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/proxy_fence.h"
#include "tile/cuda/ptx/tensor_copy.h"
#include "tile/cuda/stages.h"
#include "tile/cuda/warpgroup.h"

namespace weft {

struct GemmTiles {
  u8* shared;

  WEFT_INLINE tile::PanelTile<kGemmA> a(int stage) const { return {shared + stage * kGemmStageBytes}; }
  WEFT_INLINE tile::PanelTile<kGemmB> b(int stage) const { return {a(stage).data + kGemmA.bytes()}; }
  WEFT_INLINE tile::StageBarriers<2>& barriers() const { return *reinterpret_cast<tile::StageBarriers<2>*>(a(2).data); }
};

}  // namespace weft

WEFT_KERNEL(160, 1) void weft_warpgroup_gemm(WEFT_PARAM weft::WarpgroupGemmArgs args) {
  using namespace weft;
  const GemmTiles tiles{ptx::shared_memory()};
  const int tiles_n = (args.n + kGemmB.rows - 1) / kGemmB.rows, steps = (args.k + kGemmA.columns - 1) / kGemmA.columns;
  const int m0 = ptx::cta_index() / tiles_n * kGemmA.rows, n0 = ptx::cta_index() % tiles_n * kGemmB.rows;
  if (ptx::thread_index() == 0) {
    tiles.barriers().init(1, 1);
    ptx::fence_mbarrier_init();
  }
  ptx::cta_sync();
  tile::StageWalk<2> walk(tiles.barriers()), done = walk;
  if (ptx::warp() == 4) {
    if (ptx::lane() != 0) return;
    const ptx::CachePolicy policy = ptx::evict_normal();
    for (int step = 0; step < steps; ++step, walk.advance()) {
      u64* const full = walk.fill(kGemmStageBytes);
      const int k = step * kGemmA.columns;
      ptx::tensor_load(tiles.a(walk.stage()).data, args.a, {k, m0}, full, policy);
      ptx::tensor_load(tiles.b(walk.stage()).data, args.b, {k, n0}, full, policy);
    }
    return;
  }
  float d[kGemmB.rows / 2];
  ptx::wgmma_fence(d);
  for (int step = 0; step < steps; ++step, walk.advance()) {
    walk.wait();
    ptx::wgmma_fence();
    WEFT_UNROLL
    for (int k = 0; k < kGemmA.columns; k += 16)
      tile::multiply_async<bf16>(d, tiles.a(walk.stage()).rows(0, k), tiles.b(walk.stage()).rows(0, k),
                                 step > 0 || k > 0);
    ptx::wgmma_commit();
    // While this step is multiplied the one before it is done, and its stage is free.
    ptx::wgmma_wait<1>();
    if (step == 0) continue;
    done.release();
    done.advance();
  }
  ptx::wgmma_wait<0>(d);
  WEFT_UNROLL
  for (int r = 0; r < kGemmB.rows / 2; ++r) {
    const int row = m0 + tile::warpgroup_row(r), column = n0 + tile::warpgroup_column(r);
    if (row < args.m && column < args.n) args.c[static_cast<i64>(row) * args.n + column] = d[r];
  }
}
