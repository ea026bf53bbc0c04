// Kernels whose cp.async count at mbarriers, wrong in one way each, and their right neighbours. Lines are counted from
// the name of each on.
#include "tests/simt/kernels/args.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/bulk_copy.h"
#include "tile/cuda/ptx/cp_async.h"
#include "tile/cuda/ptx/mbarrier.h"
#include "tile/cuda/ptx/proxy_fence.h"

using namespace weft;

#line 1 "tests/simt/broken/lanes"
// A ring of two entries of 32 words, which the lanes of warp 0 fill and warp 1 empties.
namespace {
constexpr u32 kBytes = 128;
WEFT_INLINE int me() { return ptx::thread_index(); }
WEFT_INLINE u32* entry(int i) { return reinterpret_cast<u32*>(ptx::shared_memory()) + 32 * (i % 2); }
WEFT_INLINE u64* full(int i) { return reinterpret_cast<u64*>(ptx::shared_memory() + 2 * kBytes) + i % 2; }
WEFT_INLINE u64* empty(int i) { return full(i) + 2; }
WEFT_INLINE u32 parity(int i) { return static_cast<u32>(i / 2 % 2); }
WEFT_INLINE void init() {
  if (me() == 0) {
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(full(i), 1);
      ptx::mbarrier_init(empty(i), 1);
    }
    ptx::fence_mbarrier_init();
  }
  ptx::cta_sync();
}
WEFT_INLINE void copy(const u32* x, int i) {
  if (me() < 8) ptx::cp_async_16(entry(i) + 4 * me(), x + 32 * i + 4 * me());
}
WEFT_INLINE void tell(int i) {
  ptx::cp_async_arrive(full(i));
  ptx::warp_sync();
  if (me() == 0) ptx::mbarrier_arrive(full(i));
}
WEFT_INLINE void wait_for_room(int i) {
  if (me() == 0) ptx::mbarrier_wait(empty(i), parity(i) ^ 1);
  ptx::warp_sync();
}
WEFT_INLINE void fill(const RingArgs& args, int i) {
  wait_for_room(i);
  copy(args.x, i);
  tell(i);
}
// By thread 0.
WEFT_INLINE void fill_at_once(const RingArgs& args, int i, bool fences) {
  ptx::mbarrier_wait(empty(i), parity(i) ^ 1);
  if (fences) ptx::fence_async_shared();
  ptx::mbarrier_arrive_expect(full(i), kBytes);
  ptx::bulk_copy(entry(i), args.x + 32 * i, kBytes, full(i));
}
WEFT_INLINE void read(const RingArgs& args, int i) { args.y[32 * i + me() % 32] = entry(i)[31 - me() % 32]; }
WEFT_INLINE void take(const RingArgs& args, int i) {
  ptx::mbarrier_wait(full(i), parity(i));
  read(args, i);
  ptx::warp_sync();
  if (me() == 32) ptx::mbarrier_arrive(empty(i));
}
}  // namespace

#line 1 "tests/simt/broken/lanes_read_without_wait"
WEFT_KERNEL(64, 1) void weft_lanes_read_without_wait(RingArgs args) {
  init();
  if (me() < 32) fill(args, 0);
  ptx::cta_sync();
  if (me() >= 32) read(args, 0);
}

#line 1 "tests/simt/broken/lanes_told_too_early"
WEFT_KERNEL(64, 1) void weft_lanes_told_too_early(RingArgs args) {
  init();
  if (me() < 32) {
    copy(args.x, 0);
    ptx::cp_async_arrive(full(0));
    if (me() == 0) ptx::mbarrier_arrive(full(0));
  } else {
    take(args, 0);
  }
}

#line 1 "tests/simt/broken/lanes_told_by_the_last"
WEFT_KERNEL(64, 1) void weft_lanes_told_by_the_last(RingArgs args) {
  init();
  if (me() < 32) {
    copy(args.x, 0);
    ptx::cp_async_arrive(full(0));
    if (me() == 31) ptx::mbarrier_arrive(full(0));
  } else {
    take(args, 0);
  }
}

#line 1 "tests/simt/broken/lanes_never_told"
WEFT_KERNEL(64, 1) void weft_lanes_never_told(RingArgs args) {
  init();
  if (me() < 32) {
    copy(args.x, 0);
    ptx::warp_sync();
    if (me() == 0) ptx::mbarrier_arrive(full(0));
    ptx::named_sync(1, 64);
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
  } else {
    ptx::mbarrier_wait(full(0), 0);
    read(args, 0);
    ptx::named_sync(1, 64);
  }
}

#line 1 "tests/simt/broken/lanes_reuse_too_early"
WEFT_KERNEL(64, 1) void weft_lanes_reuse_too_early(RingArgs args) {
  init();
  for (int i = 0; i < 4; ++i) {
    if (me() < 32) copy(args.x, i);
    if (me() < 32) tell(i);
    if (me() < 32) ptx::mbarrier_wait(full(i), parity(i));
    if (me() >= 32) take(args, i);
  }
}

#line 1 "tests/simt/broken/bulk_copy_onto_lanes"
WEFT_KERNEL(64, 1) void weft_bulk_copy_onto_lanes(RingArgs args) {
  init();
  for (int i = 0; i < 4; ++i) {
    if (me() >= 32) take(args, i);
    if (me() < 32 && i != 2) fill(args, i);
    if (me() == 0 && i == 2) fill_at_once(args, i, false);
  }
}

#line 1 "tests/simt/broken/lanes_in_flight"
WEFT_KERNEL(64, 1) void weft_lanes_in_flight(RingArgs args) {
  init();
  if (me() < 32) fill(args, 0);
}

#line 1 "tests/simt/broken/lanes_source_written"
WEFT_KERNEL(64, 1) void weft_lanes_source_written(RingArgs args) {
  init();
  if (me() < 32) copy(args.y, 0);
  if (me() < 32) tell(0);
  ptx::cta_sync();
  if (me() == 33) args.y[7] = 0;
  if (me() == 0) ptx::mbarrier_wait(full(0), 0);
}

#line 1 "tests/simt/right/lanes"
WEFT_KERNEL(64, 1) void weft_right_lanes(RingArgs args) {
  init();
  for (int i = 0; i < 8; ++i) {
    if (me() < 32) fill(args, i);
    if (me() >= 32) take(args, i);
  }
}

#line 1 "tests/simt/right/lanes_by_turns"
WEFT_KERNEL(64, 1) void weft_lanes_by_turns(RingArgs args) {
  init();
  for (int i = 0; i < 8; ++i) {
    if (me() >= 32) take(args, i);
    if (me() < 32 && i % 3 == 1) fill(args, i);
    if (me() == 0 && i % 3 != 1) fill_at_once(args, i, true);
  }
}
