// A box of a tensor to shared memory and from there to another tensor, in 1 to 5 dimensions.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/mbarrier.h"
#include "tile/cuda/ptx/proxy_fence.h"
#include "tile/cuda/ptx/tensor_copy.h"

namespace weft {

// Calls copy(from_at, to_at) with the coordinates of `dims` dimensions.
template <int dims, class Copy>
WEFT_INLINE void with_coordinates(const BoxArgs& args, const Copy& copy) {
  if constexpr (dims <= 5) {
    if (args.from.layout.dims != dims) return with_coordinates<dims + 1>(args, copy);
    int from[dims], to[dims];
    for (int i = 0; i < dims; ++i) from[i] = args.from_at[i], to[i] = args.to_at[i];
    copy(from, to);
  }
}

}  // namespace weft

WEFT_KERNEL(64, 1) void weft_boxes(WEFT_PARAM weft::BoxArgs args) {
  using namespace weft;
  u8* const box = ptx::shared_memory();
  u64* const full = reinterpret_cast<u64*>(box + kMostBoxBytes);
  const int thread = ptx::thread_index(), bytes = args.from.layout.box_bytes();
  if (thread == 0) {
    if (args.prefetches) ptx::prefetch_map(args.from);
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect(full, static_cast<u32>(bytes));
    with_coordinates<1>(
        args, [&](const auto& at, const auto&) { ptx::tensor_load(box, args.from, at, full, ptx::evict_normal()); });
  }
  ptx::cta_sync();
  ptx::mbarrier_wait(full, 0);
  for (int i = thread; i < bytes / 4; i += ptx::num_threads()) args.shared[i] = reinterpret_cast<const u32*>(box)[i];
  if (thread == 0 && args.stores) {
    with_coordinates<1>(args, [&](const auto&, const auto& at) { ptx::tensor_store(args.to, at, box); });
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
  }
}
