// What a kernel that stays on a card is made of (sm_90a): a ring that a warp fills and others empty, registers that
// they hand over, and CTAs that wait for each other. All results are integers.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/grid_sync.h"
#include "tile/cuda/ptx/bulk_copy.h"
#include "tile/cuda/ptx/cp_async.h"
#include "tile/cuda/ptx/mbarrier.h"
#include "tile/cuda/ptx/proxy_fence.h"
#include "tile/cuda/ptx/registers.h"
#include "tile/cuda/ptx/shuffle.h"
#include "tile/cuda/ring.h"
#include "tile/cuda/wait.h"

namespace weft {

// kRingEntries of kRingEntryBytes each, and two mbarriers of each.
struct Ring {
  u8* shared;
  int entry = 0;
  u32 parity = 0;

  WEFT_INLINE u8* data() const { return shared + entry * kRingEntryBytes; }
  WEFT_INLINE u64* full() const { return reinterpret_cast<u64*>(shared + kRingEntries * kRingEntryBytes) + entry; }
  WEFT_INLINE u64* empty() const { return full() + kRingEntries; }
  WEFT_INLINE void advance() {
    if (++entry < kRingEntries) return;
    entry = 0;
    parity ^= 1;
  }
};

}  // namespace weft

// Each of the 256 threads that empty the ring makes a number of its words of all copies, in their order. CTA by CTA.
WEFT_KERNEL(384, 1) void weft_ring(WEFT_PARAM weft::PersistentArgs args) {
  using namespace weft;
  const int thread = ptx::thread_index();
  Ring ring{ptx::shared_memory()};
  if (thread == 0) {
    for (; ring.parity == 0; ring.advance()) {
      ptx::mbarrier_init(ring.full(), 1);
      ptx::mbarrier_init(ring.empty(), 8);
    }
    ptx::fence_mbarrier_init();
    ring.parity = 0;
  }
  ptx::cta_sync();
  if (thread < 128) {
    ptx::decrease_registers<24>();
    if (thread != 0) return;
    const u8* from = reinterpret_cast<const u8*>(args.x) + ptx::cta_index() * kRingBytes;
    const ptx::CachePolicy policy = ptx::evict_first();
    for (int i = 0; i < kRingCopies; ++i, ring.advance()) {
      const u32 bytes = static_cast<u32>(ring_bytes(i));
      ptx::mbarrier_wait(ring.empty(), ring.parity ^ 1);
      ptx::mbarrier_arrive_expect(ring.full(), bytes);
      const u32 half = bytes / 32 * 16;  // two copies of one phase
      if (half > 0) ptx::bulk_copy(ring.data(), from, half, ring.full(), policy);
      ptx::bulk_copy(ring.data() + half, from + half, bytes - half, ring.full());
      from += bytes;
    }
    return;
  }
  ptx::increase_registers<240>();
  const int me = thread - 128;
  u32 sum = 0;
  for (int i = 0; i < kRingCopies; ++i, ring.advance()) {
    while (!ptx::mbarrier_try_wait(ring.full(), ring.parity)) ptx::sleep_ns(20);
    const u32* const words = reinterpret_cast<const u32*>(ring.data());
    for (int at = me; at < ring_bytes(i) / 4; at += 256) sum = sum * 31 + words[at];
    ptx::warp_sync();
    if (ptx::lane() == 0) ptx::mbarrier_arrive(ring.empty());
  }
  // The first entry is empty and stays so: the sums leave by way of it.
  ptx::named_sync(1, 256);
  u32* const sums = reinterpret_cast<u32*>(ptx::shared_memory());
  sums[me] = sum;
  ptx::fence_async_shared();
  ptx::named_sync(1, 256);
  if (me == 0) {
    ptx::bulk_store(args.y + 256 * ptx::cta_index(), sums, 1024);
    ptx::bulk_commit();
    ptx::bulk_wait_read<0>();
  }
}

// The product's ring (tile/cuda/ring.h), in which bulk copies and cp.async of all lanes take turns: each lane of the
// two warps that empty it makes a number of its words of every other copy.
WEFT_KERNEL(96, 1) void weft_lanes_ring(WEFT_PARAM weft::PersistentArgs args) {
  using namespace weft;
  const tile::Ring ring{ptx::shared_memory(), kLanesRingBytes, kRingEntries};
  const int lane = ptx::lane(), warp = ptx::warp();
  if (ptx::thread_index() == 0) ring.init();
  ptx::cta_sync();
  if (warp < 2) {
    tile::RingConsumer consumer(ring, warp, 2, 0);
    u32 sum = 0;
    for (; consumer.number() < kRingCopies; consumer.release()) {
      consumer.wait();
      const u32* const words = reinterpret_cast<const u32*>(consumer.data());
      for (int at = lane; at < ring_bytes(consumer.number()) / 4; at += 32) sum = sum * 31 + words[at];
    }
    args.y[256 * ptx::cta_index() + ptx::thread_index()] = sum;
    return;
  }
  tile::RingProducer producer(ring, {kRingEntryBytes, kRingEntryBytes}, 0);
  const u8* from = reinterpret_cast<const u8*>(args.x) + ptx::cta_index() * kRingBytes;
  for (int i = 0; i < kRingCopies; ++i) {
    const u32 bytes = static_cast<u32>(ring_bytes(i));
    if (i / 2 % 2 == 0) {
      if (lane == 0) {
        producer.acquire(bytes, 0);
        ptx::bulk_copy(producer.data(), from, bytes, producer.full());
      }
    } else {
      if (lane == 0) producer.acquire_for_lanes(bytes, bytes, 0);
      u8* const data = ptx::shuffle(producer.data(), 0);
      u64* const full = ptx::shuffle(producer.full(), 0);
      ptx::warp_sync();
      for (int at = 16 * lane; at < ring_bytes(i); at += 512) ptx::cp_async_16(data + at, from + at);
      ptx::cp_async_arrive(full);
      ptx::warp_sync();
      if (lane == 0) producer.arrive();
    }
    if (lane == 0) producer.advance();
    from += bytes;
  }
  if (lane == 0) producer.drain();
}

// Five rounds in which each CTA takes what the next one had, and adds to it. A cooperative launch.
WEFT_KERNEL(320, 1) void weft_grid(WEFT_PARAM weft::PersistentArgs args) {
  using namespace weft;
  const int cta = ptx::cta_index(), me = ptx::thread_index();
  if (me >= 256) return;
  const auto all = [&] { tile::grid_sync(args.counters, me == 0, [] { ptx::named_sync(1, 256); }); };
  args.y[256 * cta + me] = args.x[256 * cta + me];
  for (int i = 0; i < 5; ++i) {
    all();
    const u32 word = args.y[256 * ((cta + 1) % ptx::num_ctas()) + me];
    all();
    args.y[256 * cta + me] = 3 * word + static_cast<u32>(cta);
  }
}

// Each CTA adds to what the one before it has: 252 words come by a counter and a copy, four beside numbers that say
// that they are there.
WEFT_KERNEL(256, 1) void weft_chain(WEFT_PARAM weft::PersistentArgs args) {
  using namespace weft;
  constexpr int kCopied = 252;
  const int cta = ptx::cta_index(), me = ptx::thread_index();
  u32* const shared = reinterpret_cast<u32*>(ptx::shared_memory());
  u64* const full = reinterpret_cast<u64*>(ptx::shared_memory() + 1024);
  if (me == 0) {
    ptx::mbarrier_init(full, 1);
    ptx::fence_async_shared();
  }
  ptx::cta_sync();
  u32 word = args.x[me];
  if (cta > 0 && me == 0) {
    const u32* const counter = args.counters + cta - 1;
    const bool is_there = tile::wait_until([&] { return ptx::load_acquire(counter) == kCopied; }, 1'000'000'000);
    ptx::fence_async_global();
    ptx::mbarrier_arrive_expect(full, is_there ? 4 * kCopied : 0);
    if (is_there) ptx::bulk_copy(shared, args.y + 256 * (cta - 1), 4 * kCopied, full, ptx::evict_last());
  }
  if (cta > 0) ptx::mbarrier_wait(full, 0);
  if (me < kCopied) {
    args.y[256 * cta + me] = word + (cta > 0 ? 2 * shared[me] : 0);
    ptx::atomic_add_release(args.counters + cta, 1);
    return;
  }
  u64* const own = args.words + 4 * cta + me - kCopied;
  u64 before = 0;
  while (cta > 0 && before >> 32 != 7) before = ptx::load_relaxed(own - 4);
  word += 2 * static_cast<u32>(before);
  ptx::store_relaxed(own, u64{7} << 32 | word);
  args.y[256 * cta + me] = word;
}

// What a wait says at every stage of a phase: each lane has an mbarrier of its own, for two arrivals.
WEFT_KERNEL(32, 1) void weft_phases(WEFT_PARAM weft::PersistentArgs args) {
  using namespace weft;
  const int lane = ptx::lane();
  u32* const data = reinterpret_cast<u32*>(ptx::shared_memory()) + 8 * lane;
  u64* const own = reinterpret_cast<u64*>(ptx::shared_memory() + 1024) + lane;
  int at = 0;
  const auto tell = [&](u32 word) { args.y[32 * at++ + lane] = word; };
  ptx::mbarrier_init(own, 2);
  ptx::fence_mbarrier_init();
  tell(ptx::mbarrier_try_wait(own, 0));
  tell(ptx::mbarrier_try_wait(own, 1));  // of the phase before the first
  ptx::mbarrier_arrive(own);
  tell(ptx::mbarrier_try_wait(own, 0));
  ptx::bulk_copy(data + 4, args.x + 8 * lane, 16, own);
  ptx::mbarrier_arrive_expect(own, 32);  // may come behind a copy, and before one
  tell(ptx::mbarrier_try_wait(own, 0));
  ptx::bulk_copy(data, args.x + 8 * lane + 4, 16, own);
  ptx::mbarrier_wait(own, 0);
  tell(data[0] + 3 * data[7]);
  tell(ptx::mbarrier_try_wait(own, 1));
  ptx::mbarrier_arrive(own);
  ptx::mbarrier_arrive(own);
  tell(ptx::mbarrier_try_wait(own, 1));
  tell(ptx::mbarrier_try_wait(own, 0));
  ptx::mbarrier_inval(own);
}
