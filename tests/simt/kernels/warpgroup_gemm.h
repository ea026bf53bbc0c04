// A product of bf16 matrices by warpgroups: tiles of 64 x 128, K in steps of 64 through two stages, which one warp
// fills by boxes of tensors while a warpgroup multiplies. What lies beyond m, n and k comes as zeros.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/mbarrier.h"
#include "tile/cuda/ptx/proxy_fence.h"
#include "tile/cuda/ptx/tensor_copy.h"
#include "tile/cuda/warpgroup.h"

namespace weft {

struct GemmStages {
  u8* shared;

  WEFT_INLINE u8* stage(int step) const { return shared + step % 2 * kGemmStageBytes; }
  WEFT_INLINE tile::PanelTile<kGemmA> a(int step) const { return {stage(step)}; }
  WEFT_INLINE tile::PanelTile<kGemmB> b(int step) const { return {stage(step) + kGemmA.bytes()}; }
  WEFT_INLINE u64* full(int step) const { return reinterpret_cast<u64*>(shared + 2 * kGemmStageBytes) + step % 2; }
  WEFT_INLINE u64* empty(int step) const { return full(step) + 2; }
  WEFT_INLINE static u32 parity(int step) { return static_cast<u32>(step / 2 % 2); }
};

}  // namespace weft

WEFT_KERNEL(160, 1) void weft_warpgroup_gemm(WEFT_PARAM weft::WarpgroupGemmArgs args) {
  using namespace weft;
  const GemmStages stages{ptx::shared_memory()};
  const int tiles_n = (args.n + kGemmB.rows - 1) / kGemmB.rows, steps = (args.k + kGemmA.columns - 1) / kGemmA.columns;
  const int m0 = ptx::cta_index() / tiles_n * kGemmA.rows, n0 = ptx::cta_index() % tiles_n * kGemmB.rows;
  if (ptx::thread_index() == 0) {
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(stages.full(i), 1);
      ptx::mbarrier_init(stages.empty(i), 1);
    }
    ptx::fence_mbarrier_init();
  }
  ptx::cta_sync();
  if (ptx::warp() == 4) {
    if (ptx::lane() != 0) return;
    const ptx::CachePolicy policy = ptx::evict_normal();
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(stages.empty(step), stages.parity(step) ^ 1);
      ptx::mbarrier_arrive_expect(stages.full(step), kGemmStageBytes);
      const int k = step * kGemmA.columns;
      ptx::tensor_load(stages.a(step).data, args.a, {k, m0}, stages.full(step), policy);
      ptx::tensor_load(stages.b(step).data, args.b, {k, n0}, stages.full(step), policy);
    }
    return;
  }
  float d[kGemmB.rows / 2];
  ptx::wgmma_fence(d);
  for (int step = 0; step < steps; ++step) {
    ptx::mbarrier_wait(stages.full(step), stages.parity(step));
    ptx::wgmma_fence();
    WEFT_UNROLL
    for (int k = 0; k < kGemmA.columns; k += 16)
      tile::multiply_async<bf16>(d, stages.a(step).rows(0, k), stages.b(step).rows(0, k), step > 0 || k > 0);
    ptx::wgmma_commit();
    // While this step is multiplied the one before it is done, and its stage is free.
    ptx::wgmma_wait<1>();
    if (step > 0 && ptx::thread_index() == 0) ptx::mbarrier_arrive(stages.empty(step - 1));
  }
  ptx::wgmma_wait<0>(d);
  WEFT_UNROLL
  for (int r = 0; r < kGemmB.rows / 2; ++r) {
    const int row = m0 + tile::warpgroup_row(r), column = n0 + tile::warpgroup_column(r);
    if (row < args.m && column < args.n) args.c[static_cast<i64>(row) * args.n + column] = d[r];
  }
}
