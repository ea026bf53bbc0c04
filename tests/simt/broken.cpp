// Kernels that are wrong in one way each, and their right neighbours. Lines are counted from the name of each on.
#include "tests/simt/kernels/args.h"
#include "tile/cuda/element.h"
#include "tile/cuda/fragment.h"
#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/cp_async.h"
#include "tile/cuda/reduce.h"

using namespace weft;

namespace {
WEFT_INLINE float* shared_floats() { return reinterpret_cast<float*>(ptx::shared_memory()); }
WEFT_INLINE int me() { return ptx::thread_index(); }
}  // namespace

#line 1 "tests/simt/broken/missing_barrier"
WEFT_KERNEL(64, 1) void weft_missing_barrier(BrokenArgs args) {
  shared_floats()[me()] = args.x[me()];
  args.y[me()] = shared_floats()[63 - me()];
}

#line 1 "tests/simt/broken/write_after_read"
WEFT_KERNEL(64, 1) void weft_write_after_read(BrokenArgs args) {
  shared_floats()[me()] = args.x[me()];
  ptx::cta_sync();
  args.y[me()] = shared_floats()[(me() + 32) % 64];
  shared_floats()[me()] = 0;
}

#line 1 "tests/simt/broken/two_writers"
WEFT_KERNEL(64, 1) void weft_two_writers(BrokenArgs args) {
  if (me() % 32 == 0) args.y[0] = args.x[me()];
}

#line 1 "tests/simt/broken/shared_out_of_bounds"
WEFT_KERNEL(64, 1) void weft_shared_out_of_bounds(BrokenArgs args) { shared_floats()[me() + 1] = args.x[me()]; }

#line 1 "tests/simt/broken/global_out_of_bounds"
WEFT_KERNEL(64, 1) void weft_global_out_of_bounds(BrokenArgs args) { args.y[me()] = args.x[me() + 1]; }

#line 1 "tests/simt/broken/misaligned"
WEFT_KERNEL(64, 1) void weft_misaligned(BrokenArgs args) {
  if (me() == 0) *reinterpret_cast<Bytes16*>(args.y) = *reinterpret_cast<const Bytes16*>(args.x + 1);
}

#line 1 "tests/simt/broken/misaligned_matrix"
WEFT_KERNEL(64, 1) void weft_misaligned_matrix(BrokenArgs args) {
  u32 r[4];
  ptx::ldmatrix_x4(r, ptx::shared_memory() + 8 * ptx::lane());
  args.y[me()] = static_cast<float>(r[0]);
}

#line 1 "tests/simt/broken/read_in_flight"
WEFT_KERNEL(64, 1) void weft_read_in_flight(BrokenArgs args) {
  if (me() < 16) ptx::cp_async_16(shared_floats() + 4 * me(), args.x + 4 * me());
  ptx::cp_async_commit();
  ptx::cta_sync();
  args.y[me()] = shared_floats()[me()];
  ptx::cp_async_wait<0>();
}

#line 1 "tests/simt/broken/one_group_too_many"
WEFT_KERNEL(64, 1) void weft_one_group_too_many(BrokenArgs args) {
  for (int i = 0; i < 2; ++i) {
    if (me() < 8) ptx::cp_async_16(shared_floats() + 32 * i + 4 * me(), args.x + 32 * i + 4 * me());
    ptx::cp_async_commit();
  }
  ptx::cp_async_wait<1>();
  ptx::cta_sync();
  args.y[me()] = shared_floats()[me()];
  ptx::cp_async_wait<0>();
}

#line 1 "tests/simt/broken/wait_without_barrier"
WEFT_KERNEL(64, 1) void weft_wait_without_barrier(BrokenArgs args) {
  if (me() < 16) ptx::cp_async_16(shared_floats() + 4 * me(), args.x + 4 * me());
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  args.y[me()] = shared_floats()[me()];
}

#line 1 "tests/simt/broken/copy_without_wait"
WEFT_KERNEL(64, 1) void weft_copy_without_wait(BrokenArgs args) {
  args.y[me()] = 1;
  if (me() < 16) ptx::cp_async_16(shared_floats() + 4 * me(), args.x + 4 * me());
}

#line 1 "tests/simt/broken/barrier_for_some"
WEFT_KERNEL(64, 1) void weft_barrier_for_some(BrokenArgs args) {
  if (me() >= 40) return;
  ptx::cta_sync();
  args.y[me()] = 1;
}

#line 1 "tests/simt/broken/two_barriers"
WEFT_KERNEL(64, 1) void weft_two_barriers(BrokenArgs args) {
  if (me() < 32) {
    ptx::cta_sync();
    args.y[me()] = 1;
  } else {
    ptx::cta_sync();
    args.y[me()] = 2;
  }
}

#line 1 "tests/simt/broken/divergent_shuffle"
WEFT_KERNEL(64, 1) void weft_divergent_shuffle(BrokenArgs args) {
  float x = args.x[me()];
  if (me() % 2 == 0) x += ptx::shuffle_xor(x, 2);
  x += ptx::shuffle_xor(x, 1);
  args.y[me()] = x;
}

#line 1 "tests/simt/broken/wrong_count"
WEFT_KERNEL(64, 1) void weft_wrong_count(BrokenArgs args) {
  if (me() < 32) ptx::named_sync(1, 64);
  args.y[me()] = 1;
}

#line 1 "tests/simt/broken/nobody_writes"
WEFT_KERNEL(64, 1) void weft_nobody_writes(BrokenArgs args) {
  while (ptx::load_acquire(args.counter) != 7) {
  }
  args.y[me()] = 1;
}

#line 1 "tests/simt/broken/unreleased"
WEFT_KERNEL(64, 1) void weft_unreleased(BrokenArgs args) {
  if (me() != 0) return;
  args.y[ptx::cta_index()] = args.x[ptx::cta_index()];
  if (ptx::atomic_add(args.counter, 1) != 1) return;
  args.y[2] = args.y[0] + args.y[1];
}

#line 1 "tests/simt/broken/order_of_arrival"
WEFT_KERNEL(64, 1) void weft_order_of_arrival(BrokenArgs args) {
  args.y[ptx::atomic_add(args.counter, 1)] = args.x[me()];
}

#line 1 "tests/simt/broken/uninitialised"
WEFT_KERNEL(64, 1) void weft_uninitialised(BrokenArgs args) {
  if (me() < 63) shared_floats()[me()] = args.x[me()];
  ptx::cta_sync();
  args.y[me()] = shared_floats()[63 - me()];
}

#line 1 "tests/simt/right/fences"
WEFT_KERNEL(64, 1) void weft_fences(BrokenArgs args) {
  if (me() != 0) return;
  args.y[ptx::cta_index()] = args.x[ptx::cta_index()];
  ptx::fence_gpu();
  if (ptx::atomic_add(args.counter, 1) != 1) return;
  ptx::fence_gpu();
  args.y[2] = args.y[0] + args.y[1];
}

#line 1 "tests/simt/right/named_barriers"
WEFT_KERNEL(64, 1) void weft_named_barriers(BrokenArgs args) {
  for (int i = 0; i < 4; ++i) {
    if (me() < 32) {
      if (i > 0) ptx::named_sync(2, 64);
      shared_floats()[me()] = args.x[me()] + static_cast<float>(i);
      ptx::named_arrive(1, 64);
    } else {
      ptx::named_sync(1, 64);
      args.y[me()] = shared_floats()[63 - me()];
      if (i < 3) ptx::named_arrive(2, 64);
    }
  }
  if (me() < 32) args.y[me()] = 0;
}

#line 1 "tests/simt/right/warp_order"
WEFT_KERNEL(64, 1) void weft_warp_order(BrokenArgs args) {
  shared_floats()[me()] = args.x[me()];
  ptx::warp_sync();
  args.y[me()] = shared_floats()[me() ^ 31];
}

#line 1 "tests/simt/right/flag"
WEFT_KERNEL(64, 1) void weft_flag(BrokenArgs args) {
  if (me() == 63) {
    args.y[0] = args.x[5];
    ptx::store_release(args.counter, 7);
  } else if (me() == 0) {
    while (ptx::load_acquire(args.counter) != 7) {
    }
    args.y[1] = args.y[0];
  }
}
