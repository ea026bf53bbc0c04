// Kernels with copies in flight, counters between CTAs and registers that move, wrong in one way each, and their right
// neighbours. Lines are counted from the name of each on.
#include "tests/simt/kernels/args.h"
#include "tile/cuda/grid_sync.h"
#include "tile/cuda/ptx/bulk_copy.h"
#include "tile/cuda/ptx/mbarrier.h"
#include "tile/cuda/ptx/proxy_fence.h"
#include "tile/cuda/ptx/registers.h"
#include "tile/cuda/wait.h"

using namespace weft;

#line 1 "tests/simt/broken/ring"
// A ring of two entries of 32 words, which thread 0 fills and warp 1 empties.
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
WEFT_INLINE void copy(const RingArgs& args, int i) { ptx::bulk_copy(entry(i), args.x + 32 * i, kBytes, full(i)); }
WEFT_INLINE void fill(const RingArgs& args, int i) {
  ptx::mbarrier_wait(empty(i), parity(i) ^ 1);
  ptx::mbarrier_arrive_expect(full(i), kBytes);
  copy(args, i);
}
WEFT_INLINE void read(const RingArgs& args, int i) { args.y[32 * i + me() % 32] = entry(i)[31 - me() % 32]; }
WEFT_INLINE void empty_it(int i) {
  ptx::warp_sync();
  if (me() == 32) ptx::mbarrier_arrive(empty(i));
}
WEFT_INLINE void take(const RingArgs& args, int i) {
  ptx::mbarrier_wait(full(i), parity(i));
  read(args, i);
  empty_it(i);
}
}  // namespace

#line 1 "tests/simt/broken/read_without_wait"
WEFT_KERNEL(64, 1) void weft_read_without_wait(RingArgs args) {
  init();
  if (me() == 0) fill(args, 0);
  ptx::cta_sync();
  if (me() >= 32) read(args, 0);
}

#line 1 "tests/simt/broken/read_too_early"
WEFT_KERNEL(64, 1) void weft_read_too_early(RingArgs args) {
  init();
  if (me() == 0) fill(args, 0);
  if (me() >= 32) ptx::mbarrier_wait(full(0), 1);
  if (me() >= 32) read(args, 0);
}

#line 1 "tests/simt/broken/same_parity"
WEFT_KERNEL(64, 1) void weft_same_parity(RingArgs args) {
  init();
  for (int i = 0; i < 4; ++i) {
    if (me() == 0) fill(args, i);
    if (me() < 32) continue;
    ptx::mbarrier_wait(full(i), 0);
    read(args, i);
    empty_it(i);
  }
}

#line 1 "tests/simt/broken/empty_ring"
WEFT_KERNEL(64, 1) void weft_empty_ring(RingArgs args) {
  init();
  if (me() == 0) {
    ptx::mbarrier_wait(empty(0), 0);
    ptx::mbarrier_arrive_expect(full(0), kBytes);
    copy(args, 0);
  }
  if (me() >= 32) take(args, 0);
}

#line 1 "tests/simt/broken/phase_gone_by"
WEFT_KERNEL(64, 1) void weft_phase_gone_by(RingArgs args) {
  init();
  for (int i = 0; i < 4; ++i) {
    if (me() == 0) fill(args, i);
    if (me() >= 32) take(args, i);
  }
  u64* const told = reinterpret_cast<u64*>(args.counter);
  if (me() == 32) ptx::store_relaxed(told, 1);
  if (me() != 1) return;
  while (ptx::load_relaxed(told) == 0) {
  }
  ptx::mbarrier_wait(full(0), 0);
}

#line 1 "tests/simt/broken/too_many_bytes"
WEFT_KERNEL(64, 1) void weft_too_many_bytes(RingArgs args) {
  init();
  if (me() == 0) {
    ptx::mbarrier_arrive_expect(full(0), 2 * kBytes);
    copy(args, 0);
  }
  if (me() >= 32) take(args, 0);
}

#line 1 "tests/simt/broken/too_few_bytes"
WEFT_KERNEL(64, 1) void weft_too_few_bytes(RingArgs args) {
  init();
  if (me() == 0) {
    ptx::mbarrier_arrive_expect(full(0), kBytes - 16);
    copy(args, 0);
  }
  if (me() >= 32) take(args, 0);
}

#line 1 "tests/simt/broken/no_bytes"
WEFT_KERNEL(64, 1) void weft_no_bytes(RingArgs args) {
  init();
  if (me() == 0) {
    copy(args, 0);
    ptx::mbarrier_arrive(full(0));
  }
  if (me() >= 32) take(args, 0);
}

#line 1 "tests/simt/broken/too_many_arrivals"
WEFT_KERNEL(64, 1) void weft_too_many_arrivals(RingArgs args) {
  init();
  if (me() == 0) {
    ptx::mbarrier_arrive_expect(full(0), kBytes);
    ptx::mbarrier_arrive(full(0));
    copy(args, 0);
  }
  if (me() >= 32) take(args, 0);
}

#line 1 "tests/simt/broken/too_few_arrivals"
WEFT_KERNEL(64, 1) void weft_too_few_arrivals(RingArgs args) {
  if (me() == 0) ptx::mbarrier_init(full(0), 64);
  ptx::cta_sync();
  if (me() != 5) ptx::mbarrier_arrive(full(0));
  ptx::mbarrier_wait(full(0), 0);
  args.y[me()] = 1;
}

#line 1 "tests/simt/broken/init_again"
WEFT_KERNEL(64, 1) void weft_init_again(RingArgs) {
  init();
  if (me() == 0) ptx::mbarrier_init(full(1), 1);
}

#line 1 "tests/simt/broken/no_init"
WEFT_KERNEL(64, 1) void weft_no_init(RingArgs) {
  init();
  if (me() == 0) ptx::mbarrier_arrive(full(0) + 7);
}

#line 1 "tests/simt/broken/init_without_barrier"
WEFT_KERNEL(64, 1) void weft_init_without_barrier(RingArgs) {
  if (me() == 0) ptx::mbarrier_init(full(0), 1);
  ptx::warp_sync();
  if (me() == 32) ptx::mbarrier_arrive(full(0));
}

#line 1 "tests/simt/broken/init_without_fence"
WEFT_KERNEL(64, 1) void weft_init_without_fence(RingArgs args) {
  if (me() == 0) ptx::mbarrier_init(full(0), 1);
  ptx::cta_sync();
  if (me() == 0) ptx::mbarrier_arrive_expect(full(0), kBytes);
  if (me() == 0) copy(args, 0);
  ptx::mbarrier_wait(full(0), 0);
}

#line 1 "tests/simt/broken/used_after_inval"
WEFT_KERNEL(64, 1) void weft_used_after_inval(RingArgs) {
  init();
  if (me() == 0) ptx::mbarrier_inval(full(0));
  ptx::cta_sync();
  if (me() == 32) ptx::mbarrier_arrive(full(0));
}

#line 1 "tests/simt/broken/written_over"
WEFT_KERNEL(64, 1) void weft_written_over(RingArgs) {
  init();
  if (me() == 32) entry(0)[2 * 32] = 0;
}

#line 1 "tests/simt/broken/reused_too_early"
WEFT_KERNEL(64, 1) void weft_reused_too_early(RingArgs args) {
  init();
  for (int i = 0; i < 4; ++i) {
    if (me() == 0) ptx::mbarrier_arrive_expect(full(i), kBytes);
    if (me() == 0) copy(args, i);
    if (me() == 0) ptx::mbarrier_wait(full(i), parity(i));
    if (me() >= 32) take(args, i);
  }
}

#line 1 "tests/simt/broken/emptied_by_one_lane"
WEFT_KERNEL(64, 1) void weft_emptied_by_one_lane(RingArgs args) {
  init();
  for (int i = 0; i < 4; ++i) {
    if (me() == 0) fill(args, i);
    if (me() < 32) continue;
    ptx::mbarrier_wait(full(i), parity(i));
    if (me() == 32) ptx::mbarrier_arrive(empty(i));
    read(args, i);
  }
}

#line 1 "tests/simt/broken/one_warp_of_four"
WEFT_KERNEL(160, 1) void weft_one_warp_of_four(RingArgs args) {
  init();
  for (int i = 0; i < 4; ++i) {
    if (me() == 0) fill(args, i);
    if (me() < 32) continue;
    ptx::mbarrier_wait(full(i), parity(i));
    const u32 word = entry(i)[0];
    if (me() / 32 != 3) ptx::named_sync(1, 96);
    if (me() == 32) ptx::mbarrier_arrive(empty(i));
    if (me() % 32 == 0) args.y[32 * i + me() / 32] = word;
  }
}

#line 1 "tests/simt/broken/copy_onto_stores"
WEFT_KERNEL(64, 1) void weft_copy_onto_stores(RingArgs args) {
  init();
  if (me() < 32) entry(0)[me()] = 0;
  ptx::cta_sync();
  if (me() == 0) fill(args, 0);
  if (me() >= 32) take(args, 0);
}

#line 1 "tests/simt/broken/store_without_fence"
WEFT_KERNEL(64, 1) void weft_store_without_fence(RingArgs args) {
  if (me() < 32) entry(0)[me()] = args.x[me()];
  ptx::cta_sync();
  if (me() == 0) ptx::bulk_store(args.y, entry(0), kBytes);
  ptx::bulk_commit();
  ptx::bulk_wait<0>();
}

#line 1 "tests/simt/broken/fence_of_another_cta"
WEFT_KERNEL(64, 1) void weft_fence_of_another_cta(RingArgs args) {
  init();
  if (me() != 0) return;
  if (ptx::cta_index() == 0) {
    for (int i = 0; i < 32; ++i) args.y[i] = args.x[i];
    ptx::fence_async_global();
    ptx::store_release(args.counter, 1);
  } else {
    while (ptx::load_acquire(args.counter) != 1) {
    }
    ptx::mbarrier_arrive_expect(full(0), kBytes);
    ptx::bulk_copy(entry(0), args.y, kBytes, full(0));
    ptx::mbarrier_wait(full(0), 0);
  }
}

#line 1 "tests/simt/broken/source_written"
WEFT_KERNEL(64, 1) void weft_source_written(RingArgs args) {
  init();
  if (me() == 0) {
    ptx::mbarrier_arrive_expect(full(0), kBytes);
    ptx::bulk_copy(entry(0), args.y, kBytes, full(0));
  }
  ptx::cta_sync();
  if (me() == 33) args.y[7] = 0;
  if (me() == 0) ptx::mbarrier_wait(full(0), 0);
}

#line 1 "tests/simt/broken/stored_from_too_late"
WEFT_KERNEL(64, 1) void weft_stored_from_too_late(RingArgs args) {
  entry(0)[me()] = args.x[me()];
  ptx::fence_async_shared();
  ptx::cta_sync();
  if (me() == 0) ptx::bulk_store(args.y, entry(0), 2 * kBytes);
  if (me() == 0) ptx::bulk_commit();
  entry(0)[me()] = 0;
  if (me() == 0) ptx::bulk_wait<0>();
}

#line 1 "tests/simt/broken/store_never_waited_for"
WEFT_KERNEL(64, 1) void weft_store_never_waited_for(RingArgs args) {
  entry(0)[me()] = args.x[me()];
  ptx::fence_async_shared();
  ptx::cta_sync();
  if (me() == 0) ptx::bulk_store(args.y, entry(0), 2 * kBytes);
  if (me() == 0) ptx::bulk_commit();
}

#line 1 "tests/simt/broken/read_of_a_store"
WEFT_KERNEL(64, 1) void weft_read_of_a_store(RingArgs args) {
  entry(0)[me()] = args.x[me()];
  ptx::fence_async_shared();
  ptx::cta_sync();
  if (me() == 0) ptx::bulk_store(args.y, entry(0), 2 * kBytes);
  if (me() == 0) ptx::bulk_commit();
  if (me() == 0) ptx::bulk_wait_read<0>();
  ptx::cta_sync();
  if (args.y[me()] == 3) args.counter[0] = 1;
}

#line 1 "tests/simt/broken/copy_of_20_bytes"
WEFT_KERNEL(64, 1) void weft_copy_of_20_bytes(RingArgs args) {
  init();
  if (me() != 0) return;
  ptx::mbarrier_arrive_expect(full(0), 20);
  ptx::bulk_copy(entry(0), args.x, 20, full(0));
}

#line 1 "tests/simt/broken/misaligned_copy"
WEFT_KERNEL(64, 1) void weft_misaligned_copy(RingArgs args) {
  init();
  if (me() != 0) return;
  ptx::mbarrier_arrive_expect(full(0), 32);
  ptx::bulk_copy(entry(0), args.x + 2, 32, full(0));
}

#line 1 "tests/simt/broken/copy_past_the_end"
WEFT_KERNEL(64, 1) void weft_copy_past_the_end(RingArgs args) {
  init();
  if (me() != 0) return;
  ptx::mbarrier_arrive_expect(full(0), kBytes);
  ptx::bulk_copy(entry(0), args.x + 8 * 32 - 16, kBytes, full(0));
}

#line 1 "tests/simt/broken/copy_nobody_waits_for"
WEFT_KERNEL(64, 1) void weft_copy_nobody_waits_for(RingArgs args) {
  init();
  if (me() == 0) fill(args, 0);
}

#line 1 "tests/simt/broken/acquired_by_nobody"
WEFT_KERNEL(64, 1) void weft_acquired_by_nobody(RingArgs args) {
  u64* const word = reinterpret_cast<u64*>(args.counter);
  if (me() != 0) return;
  if (ptx::cta_index() == 0) {
    args.y[0] = args.x[0];
    ptx::fence_gpu();
    ptx::store_relaxed(word, 7);
  } else {
    while (ptx::load_relaxed(word) != 7) {
    }
    args.y[1] = args.y[0];
  }
}

#line 1 "tests/simt/broken/written_before_all_have_read"
WEFT_KERNEL(64, 1) void weft_written_before_all_have_read(RingArgs args) {
  if (me() != 0) return;
  const int cta = ptx::cta_index();
  if (cta > 0) {
    args.y[cta] = args.y[0];
    ptx::atomic_add_release(args.counter, 1);
  } else {
    while (ptx::load_acquire(args.counter) < 2) {
    }
    args.y[0] = 5;
  }
}

#line 1 "tests/simt/broken/grid_of_some"
WEFT_KERNEL(64, 1) void weft_grid_of_some(RingArgs args) {
  if (ptx::cta_index() == 2) return;
  args.y[64 * ptx::cta_index() + me()] = 1;
  tile::grid_sync(args.counter);
}

#line 1 "tests/simt/broken/registers_of_some"
WEFT_KERNEL(128, 1) void weft_registers_of_some(RingArgs) {
  if (me() < 64)
    ptx::decrease_registers<40>();
  else
    ptx::decrease_registers<24>();
}

#line 1 "tests/simt/broken/more_registers_than_there_are"
WEFT_KERNEL(384, 1) void weft_more_registers_than_there_are(RingArgs) {
  if (me() < 128)
    ptx::decrease_registers<40>();
  else
    ptx::increase_registers<240>();
}

#line 1 "tests/simt/broken/fewer_registers_by_increase"
WEFT_KERNEL(384, 1) void weft_fewer_registers_by_increase(RingArgs) { ptx::increase_registers<160>(); }

#line 1 "tests/simt/broken/registers_of_one_warp"
WEFT_KERNEL(160, 1) void weft_registers_of_one_warp(RingArgs) {
  if (me() >= 128) ptx::decrease_registers<40>();
}

#line 1 "tests/simt/broken/registers_twice"
WEFT_KERNEL(128, 1) void weft_registers_twice(RingArgs) {
  ptx::decrease_registers<40>();
  ptx::decrease_registers<24>();
}

#line 1 "tests/simt/broken/two_counts"
WEFT_KERNEL(96, 1) void weft_two_counts(RingArgs) { ptx::named_sync(1, me() < 32 ? 64 : 96); }

#line 1 "tests/simt/right/ring"
WEFT_KERNEL(64, 1) void weft_right_ring(RingArgs args) {
  init();
  if (me() == 0)
    for (int i = 0; i < 8; ++i) fill(args, i);
  if (me() >= 32)
    for (int i = 0; i < 8; ++i) take(args, i);
}

#line 1 "tests/simt/right/polled_ring"
WEFT_KERNEL(64, 1) void weft_polled_ring(RingArgs args) {
  init();
  for (int i = 0; i < 8; ++i) {
    if (me() == 0) fill(args, i);
    if (me() < 32) continue;
    while (!ptx::mbarrier_try_wait(full(i), parity(i))) ptx::sleep_ns(20);
    read(args, i);
    empty_it(i);
  }
}

#line 1 "tests/simt/right/stores"
WEFT_KERNEL(64, 1) void weft_right_stores(RingArgs args) {
  for (int i = 0; i < 4; ++i) {
    entry(0)[me()] = 2 * args.x[64 * i + me()];
    ptx::fence_async_shared();
    ptx::cta_sync();
    if (me() == 0) {
      ptx::bulk_store(args.y + 64 * i, entry(0), 2 * kBytes);
      ptx::bulk_commit();
      ptx::bulk_wait_read<0>();
    }
    ptx::cta_sync();
  }
}

#line 1 "tests/simt/right/fence_behind_the_acquire"
WEFT_KERNEL(64, 1) void weft_fence_behind_the_acquire(RingArgs args) {
  init();
  if (me() != 0) return;
  if (ptx::cta_index() == 0) {
    for (int i = 0; i < 32; ++i) args.y[i] = args.x[i];
    ptx::store_release(args.counter, 1);
  } else {
    while (ptx::load_acquire(args.counter) != 1) {
    }
    ptx::fence_async_global();
    ptx::mbarrier_arrive_expect(full(0), kBytes);
    ptx::bulk_copy(entry(0), args.y, kBytes, full(0), ptx::evict_first());
    ptx::mbarrier_wait(full(0), 0);
    args.y[32] = entry(0)[5];
  }
}

#line 1 "tests/simt/right/inval"
WEFT_KERNEL(64, 1) void weft_right_inval(RingArgs args) {
  init();
  if (me() == 0) fill(args, 0);
  if (me() >= 32) take(args, 0);
  ptx::cta_sync();
  if (me() == 0) {
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_inval(full(i));
      ptx::mbarrier_inval(empty(i));
    }
    ptx::mbarrier_init(full(1), 64);
  }
  ptx::cta_sync();
  if (me() == 7) *full(0) = 1;
  ptx::mbarrier_arrive(full(1));
  ptx::mbarrier_wait(full(1), 0);
}

#line 1 "tests/simt/right/grid"
WEFT_KERNEL(64, 1) void weft_right_grid(RingArgs args) {
  const int cta = ptx::cta_index(), n = ptx::num_ctas();
  args.y[64 * cta + me()] = args.x[64 * cta + me()];
  for (int i = 0; i < 5; ++i) {
    tile::grid_sync(args.counter);
    const u32 word = args.y[64 * ((cta + 1) % n) + me()];
    tile::grid_sync(args.counter);
    args.y[64 * cta + me()] = word + 1;
  }
}

#line 1 "tests/simt/right/counters"
WEFT_KERNEL(64, 1) void weft_right_counters(RingArgs args) {
  const int cta = ptx::cta_index(), n = ptx::num_ctas();
  args.y[64 * cta + me()] = args.x[me()] + static_cast<u32>(cta);
  ptx::cta_sync();
  if (me() == 0) ptx::atomic_add_release(args.counter + cta % 2, 1);
  if (cta >= 2) return;
  if (me() == 0)
    while (ptx::load_acquire(args.counter + cta) < static_cast<u32>((n + 1 - cta) / 2)) {
    }
  ptx::cta_sync();
  for (int other = cta + 2; other < n; other += 2) args.y[64 * cta + me()] += args.y[64 * other + me()];
}

#line 1 "tests/simt/right/readiness_in_the_data"
WEFT_KERNEL(64, 1) void weft_readiness_in_the_data(RingArgs args) {
  u64* const words = reinterpret_cast<u64*>(args.y);
  if (ptx::cta_index() == 0) {
    ptx::store_relaxed(words + me(), u64{1} << 32 | args.x[me()]);
  } else {
    u64 word = 0;
    while (word >> 32 != 1) word = ptx::load_relaxed(words + me());
    ptx::store_relaxed(words + 64 + me(), word + 1);
  }
}

#line 1 "tests/simt/right/gives_up"
WEFT_KERNEL(64, 1) void weft_gives_up(RingArgs args) {
  const bool is_over =
      tile::wait_until([&] { return ptx::load_acquire(args.counter) >= static_cast<u32>(64 + me()); }, 100'000);
  args.y[me()] = is_over ? 1 : 2;
  const bool waited = tile::wait_until([&] { return ptx::load_acquire(args.counter) == 0; }, 0);
  args.y[64 + me()] = waited ? 1 : 2;
}

#line 1 "tests/simt/right/registers"
WEFT_KERNEL(384, 1) void weft_right_registers(RingArgs args) {
  if (me() < 128) {
    ptx::decrease_registers<24>();
  } else {
    ptx::increase_registers<240>();
  }
  if (me() < 256) args.y[me()] = args.x[me()];
}
