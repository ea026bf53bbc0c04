// Kernels with boxes of tensors, wrong in one way each. Lines are counted from the name of each on.
#include "tests/simt/kernels/args.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/mbarrier.h"
#include "tile/cuda/ptx/proxy_fence.h"
#include "tile/cuda/ptx/tensor_copy.h"
#include "tile/cuda/warpgroup.h"

using namespace weft;

#line 1 "tests/simt/broken/boxes"
// Boxes of 64 rows of 64 numbers, of which thread 0 loads some.
namespace {
inline constexpr abi::MatrixTile kTile = {64, 64, abi::Swizzle::bytes_128}, kOther = {64, 64, abi::Swizzle::bytes_64};
WEFT_INLINE int me() { return ptx::thread_index(); }
WEFT_INLINE u8* box(int i) { return ptx::shared_memory() + i * kTile.bytes(); }
WEFT_INLINE u64* full() { return reinterpret_cast<u64*>(box(2)); }
WEFT_INLINE void load(const TensorArgs& args, int i) { ptx::tensor_load(box(i), args.map, {0, 0}, full(), 0); }
WEFT_INLINE void begin(u32 bytes) {
  if (me() == 0) {
    ptx::mbarrier_init(full(), 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect(full(), bytes);
  }
  ptx::cta_sync();
}
WEFT_INLINE void multiply(float (&d)[32]) {
  const tile::PanelTile<kTile> tile{box(0)};
  ptx::wgmma_fence(d);
  tile::multiply_async<bf16>(d, tile.rows(0, 0), tile.rows(0, 0), false);
  ptx::wgmma_commit();
}
}  // namespace

#line 1 "tests/simt/broken/box_read_early"
WEFT_KERNEL(128, 1) void weft_box_read_early(TensorArgs args) {
  begin(8192);
  if (me() == 0) load(args, 0);
  ptx::cta_sync();
  args.y[me()] = reinterpret_cast<u32*>(box(0))[me()];
}

#line 1 "tests/simt/broken/box_bytes"
WEFT_KERNEL(128, 1) void weft_box_bytes(TensorArgs args) {
  begin(8192 - 2048);  // of the rows that there are
  if (me() == 0) ptx::tensor_load(box(0), args.map, {0, 152}, full(), 0);
  ptx::mbarrier_wait(full(), 0);
}

#line 1 "tests/simt/broken/box_askew"
WEFT_KERNEL(128, 1) void weft_box_askew(TensorArgs args) {
  begin(8192);
  if (me() == 0) ptx::tensor_load(box(0) + 128, args.map, {0, 0}, full(), 0);
  ptx::mbarrier_wait(full(), 0);
}

#line 1 "tests/simt/broken/box_of_three"
WEFT_KERNEL(128, 1) void weft_box_of_three(TensorArgs args) {
  begin(8192);
  if (me() == 0) ptx::tensor_load(box(0), args.map, {0, 0, 0}, full(), 0);
  ptx::mbarrier_wait(full(), 0);
}

#line 1 "tests/simt/broken/box_odd"
WEFT_KERNEL(128, 1) void weft_box_odd(TensorArgs args) {
  begin(8192);
  if (me() == 0) ptx::tensor_load(box(0), args.map, {3, 0}, full(), 0);
  ptx::mbarrier_wait(full(), 0);
}

#line 1 "tests/simt/broken/box_stored_before"
WEFT_KERNEL(128, 1) void weft_box_stored_before(TensorArgs args) {
  if (me() == 0) ptx::tensor_store(args.map, {0, -5}, box(0));
  ptx::bulk_commit();
  ptx::bulk_wait<0>();
}

#line 1 "tests/simt/broken/box_stored_without_fence"
WEFT_KERNEL(128, 1) void weft_box_stored_without_fence(TensorArgs args) {
  for (int i = me(); i < kTile.bytes() / 4; i += 128) reinterpret_cast<u32*>(box(0))[i] = 7;
  ptx::cta_sync();
  if (me() == 0) ptx::tensor_store(args.map, {0, 0}, box(0));
  ptx::bulk_commit();
  ptx::bulk_wait<0>();
}

#line 1 "tests/simt/broken/box_multiplied_early"
WEFT_KERNEL(128, 1) void weft_box_multiplied_early(TensorArgs args) {
  begin(8192);
  if (me() == 0) load(args, 0);
  if (me() < 32) ptx::mbarrier_wait(full(), 0);
  float d[32];
  multiply(d);
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/box_in_another_swizzle"
WEFT_KERNEL(128, 1) void weft_box_in_another_swizzle(TensorArgs args) {
  begin(8192);
  if (me() == 0) load(args, 0);
  ptx::mbarrier_wait(full(), 0);
  float d[32];
  const tile::PanelTile<kOther> tile{box(0)};
  ptx::wgmma_fence(d);
  tile::multiply_async<bf16>(d, tile.rows(0, 0), tile.rows(0, 0), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
}

#line 1 "tests/simt/broken/box_filled_early"
WEFT_KERNEL(128, 1) void weft_box_filled_early(TensorArgs args) {
  begin(8192);
  if (me() == 0) load(args, 0);
  ptx::mbarrier_wait(full(), 0);
  float d[32];
  multiply(d);
  if (me() == 0) ptx::mbarrier_arrive_expect(full(), 8192);
  if (me() == 0) load(args, 0);
  ptx::wgmma_wait<0>(d);
  ptx::mbarrier_wait(full(), 1);
}
