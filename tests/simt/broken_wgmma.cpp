// Kernels with products of warpgroups, wrong in one way each, and their right neighbours. Lines are counted from the
// name of each on.
#include "tests/simt/kernels/args.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/mbarrier.h"
#include "tile/cuda/ptx/proxy_fence.h"
#include "tile/cuda/warpgroup.h"

using namespace weft;

#line 1 "tests/simt/broken/tiles"
// A and B have 64 rows of 64 elements, which are all `value`; thread by thread two numbers of the product leave.
namespace {
inline constexpr abi::MatrixTile kTile = {64, 64, abi::Swizzle::bytes_128};
inline constexpr u16 kOne = 0x3f80, kTwo = 0x4000;  // as bf16
WEFT_INLINE int me() { return ptx::thread_index(); }
WEFT_INLINE tile::PanelTile<kTile> a() { return {ptx::shared_memory()}; }
WEFT_INLINE tile::PanelTile<kTile> b() { return {ptx::shared_memory() + kTile.bytes()}; }
WEFT_INLINE void store(const tile::PanelTile<kTile>& to, u16 value) {
  for (int i = me(); i < kTile.bytes() / 2; i += 128) reinterpret_cast<u16*>(to.data)[i] = value;
}
WEFT_INLINE void fill() {
  if (me() < 128) store(a(), kOne), store(b(), kTwo);
  ptx::fence_async_shared();
  ptx::cta_sync();
}
WEFT_INLINE void multiply(float (&d)[32], int k, bool accumulates) {
  tile::multiply_async<bf16>(d, a().rows(0, k), b().rows(0, k), accumulates);
}
WEFT_INLINE void tell(const WarpgroupArgs& args, const float (&d)[32]) {
  args.y[2 * me()] = d[0];
  args.y[2 * me() + 1] = d[31];
}
}  // namespace

#line 1 "tests/simt/broken/product_read_early"
WEFT_KERNEL(128, 1) void weft_product_read_early(WarpgroupArgs args) {
  fill();
  float d[32];
  ptx::wgmma_fence(d);
  multiply(d, 0, false);
  ptx::wgmma_commit();
  tell(args, d);
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/product_never_committed"
WEFT_KERNEL(128, 1) void weft_product_never_committed(WarpgroupArgs args) {
  fill();
  float d[32];
  ptx::wgmma_fence(d);
  multiply(d, 0, false);
  ptx::wgmma_wait<0>(d);
  tell(args, d);
}

#line 1 "tests/simt/broken/one_product_too_many"
WEFT_KERNEL(128, 1) void weft_one_product_too_many(WarpgroupArgs args) {
  fill();
  float first[32], second[32];
  ptx::wgmma_fence(first, second);
  multiply(first, 0, false);
  ptx::wgmma_commit();
  multiply(second, 16, false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<1>(first);
  tell(args, first);
  tell(args, second);
}

#line 1 "tests/simt/broken/accumulators_not_named"
WEFT_KERNEL(128, 1) void weft_accumulators_not_named(WarpgroupArgs args) {
  fill();
  float d[32];
  ptx::wgmma_fence(d);
  multiply(d, 0, false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  tell(args, d);
}

#line 1 "tests/simt/broken/scaled_under_way"
WEFT_KERNEL(128, 1) void weft_scaled_under_way(WarpgroupArgs args) {
  fill();
  float d[32] = {};
  ptx::wgmma_fence(d);
  multiply(d, 0, true);
  for (int i = 0; i < 32; ++i) d[i] = args.x[0];
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/product_without_fence"
WEFT_KERNEL(128, 1) void weft_product_without_fence(WarpgroupArgs args) {
  fill();
  float d[32];
  ptx::wgmma_fence(d);
  for (int i = 0; i < 32; ++i) d[i] = args.x[i];
  multiply(d, 0, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/first_without_fence"
WEFT_KERNEL(128, 1) void weft_first_without_fence(WarpgroupArgs) {
  fill();
  float d[32];
  multiply(d, 0, false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/a_without_fence"
WEFT_KERNEL(128, 1) void weft_a_without_fence(WarpgroupArgs args) {
  fill();
  float d[32];
  u32 own[4];
  ptx::wgmma_fence(d);
  for (int i = 0; i < 4; ++i) own[i] = static_cast<u32>(args.x[i]);
  tile::multiply_async<bf16>(d, own, b().rows(0, 0), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/a_changed_under_way"
WEFT_KERNEL(128, 1) void weft_a_changed_under_way(WarpgroupArgs args) {
  fill();
  float d[32];
  u32 own[4];
  for (int k = 0; k < 64; k += 16) {
    for (int i = 0; i < 4; ++i) own[i] = static_cast<u32>(args.x[k + i]);
    ptx::wgmma_fence(own, d);
    tile::multiply_async<bf16>(d, own, b().rows(0, k), k > 0);
    ptx::wgmma_commit();
  }
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/tile_without_proxy_fence"
WEFT_KERNEL(128, 1) void weft_tile_without_proxy_fence(WarpgroupArgs) {
  fill();
  store(a(), kTwo);
  ptx::cta_sync();
  float d[32];
  ptx::wgmma_fence(d);
  multiply(d, 0, false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/tile_without_barrier"
WEFT_KERNEL(128, 1) void weft_tile_without_barrier(WarpgroupArgs) {
  store(a(), kOne);
  ptx::fence_async_shared();
  float d[32];
  ptx::wgmma_fence(d);
  multiply(d, 0, false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/tile_written_early"
WEFT_KERNEL(160, 1) void weft_tile_written_early(WarpgroupArgs args) {
  fill();
  if (me() >= 128) {
    ptx::named_sync(1, 160);
    reinterpret_cast<u16*>(b().data)[me()] = kOne;
    return;
  }
  float d[32];
  ptx::wgmma_fence(d);
  multiply(d, 0, false);
  ptx::wgmma_commit();
  ptx::named_arrive(1, 160);
  ptx::wgmma_wait<0>(d);
  tell(args, d);
}

#line 1 "tests/simt/broken/tile_written_before_others_waited"
WEFT_KERNEL(128, 1) void weft_tile_written_before_others_waited(WarpgroupArgs) {
  fill();
  float d[32];
  ptx::wgmma_fence(d);
  multiply(d, 0, false);
  ptx::wgmma_commit();
  reinterpret_cast<u16*>(b().data)[me()] = kOne;
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/beyond_the_tile"
WEFT_KERNEL(128, 1) void weft_beyond_the_tile(WarpgroupArgs) {
  fill();
  float d[32];
  ptx::wgmma_fence(d);
  tile::multiply_async<bf16>(d, a().rows(0, 0), b().rows(8, 0), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/beyond_the_row"
WEFT_KERNEL(128, 1) void weft_beyond_the_row(WarpgroupArgs) {
  fill();
  float d[32];
  ptx::wgmma_fence(d);
  for (int k = 0; k <= 64; k += 16) multiply(d, k, k > 0);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/tile_askew"
WEFT_KERNEL(128, 1) void weft_tile_askew(WarpgroupArgs) {
  fill();
  float d[32];
  ptx::wgmma_fence(d);
  const tile::PanelTile<kTile> askew{ptx::shared_memory() + 512};
  tile::multiply_async<bf16>(d, askew.rows(0, 0), b().rows(0, 0), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/row_askew"
WEFT_KERNEL(128, 1) void weft_row_askew(WarpgroupArgs) {
  fill();
  float d[16];
  ptx::wgmma_fence(d);
  tile::multiply_async<bf16>(d, a().rows(0, 0), b().rows(4, 0), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/three_warps"
WEFT_KERNEL(128, 1) void weft_three_warps(WarpgroupArgs) {
  fill();
  if (me() >= 96) return;
  float d[32];
  ptx::wgmma_fence(d);
  multiply(d, 0, false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/fifth_warp"
WEFT_KERNEL(160, 1) void weft_fifth_warp(WarpgroupArgs) {
  fill();
  if (me() < 128) return;
  float d[32];
  ptx::wgmma_fence(d);
  multiply(d, 0, false);
}

#line 1 "tests/simt/broken/two_products"
WEFT_KERNEL(128, 1) void weft_two_products(WarpgroupArgs) {
  fill();
  float d[32];
  ptx::wgmma_fence(d);
  if (me() < 32)
    tile::multiply_async<bf16>(d, a().rows(0, 0), b().rows(0, 0), false);
  else
    tile::multiply_async<bf16>(d, a().rows(0, 16), b().rows(0, 16), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/descriptors_differ"
WEFT_KERNEL(128, 1) void weft_descriptors_differ(WarpgroupArgs) {
  fill();
  float d[32];
  ptx::wgmma_fence(d);
  multiply(d, me() < 32 ? 0 : 16, false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/two_shapes"
WEFT_KERNEL(128, 1) void weft_two_shapes(WarpgroupArgs) {
  fill();
  float d[2][16];
  ptx::wgmma_fence(d);
  tile::multiply_async<bf16>(d[0], a().rows(0, 0), b().rows(0, 0), false);
  multiply(reinterpret_cast<float(&)[32]>(d), 0, false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/product_nobody_waits_for"
WEFT_KERNEL(128, 1) void weft_product_nobody_waits_for(WarpgroupArgs) {
  fill();
  float d[32];
  ptx::wgmma_fence(d);
  multiply(d, 0, false);
  ptx::wgmma_commit();
}

#line 1 "tests/simt/right/products"
WEFT_KERNEL(128, 1) void weft_right_products(WarpgroupArgs args) {
  fill();
  float first[32], second[32] = {};
  ptx::wgmma_fence(first, second);
  for (int k = 0; k < 64; k += 16) multiply(first, k, k > 0);
  ptx::wgmma_commit();
  for (int k = 0; k < 32; k += 16) multiply(second, k, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<1>(first);
  for (int i = 0; i < 32; ++i) first[i] *= 2.f;
  ptx::wgmma_fence(first);
  multiply(first, 0, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(first, second);
  for (int i = 0; i < 32; ++i) first[i] += second[i];
  tell(args, first);
}

#line 1 "tests/simt/right/tile_filled_again"
// One thread of the warpgroup tells the writer that all of it has read.
WEFT_KERNEL(160, 1) void weft_tile_filled_again(WarpgroupArgs args) {
  u64* const full = reinterpret_cast<u64*>(ptx::shared_memory() + 2 * kTile.bytes());
  u64* const empty = full + 1;
  if (me() == 0) {
    ptx::mbarrier_init(full, 32);
    ptx::mbarrier_init(empty, 1);
  }
  fill();
  if (me() >= 128) {
    ptx::mbarrier_wait(empty, 0);
    for (int i = me() - 128; i < kTile.bytes() / 2; i += 32) reinterpret_cast<u16*>(b().data)[i] = kOne;
    ptx::fence_async_shared();
    ptx::mbarrier_arrive(full);
    return;
  }
  float d[32];
  ptx::wgmma_fence(d);
  multiply(d, 0, false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  if (me() == 0) ptx::mbarrier_arrive(empty);
  ptx::mbarrier_wait(full, 0);
  ptx::wgmma_fence(d);
  multiply(d, 0, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  tell(args, d);
}
