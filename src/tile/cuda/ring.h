// A ring of entries in shared memory, between one thread that fills it by bulk copies and warps that empty it (from
// sm_90 on). An entry belongs to one warp, which waits for it, reads it and releases it alone: entry number i to warp
// i % warps. `entries` is a multiple of the warps: else a warp could be a round ahead of an entry's other readers, and
// would take the parity of the round before last for its own.
//
//   const Ring ring{shared, 16, 12 << 10};
//   if (thread == 0) ring.init();
//   cta_sync();
//   RingProducer producer(ring, {.ahead = 36 << 10, .beside = 64 << 10}, limit_ns);          // one thread
//   if (!producer.acquire(bytes, phase)) return producer.drain();
//   bulk_copy(producer.data(), from, bytes, producer.full());
//   producer.advance();
//   RingConsumer consumer(ring, warp, warps, limit_ns);                                      // all lanes of each warp
//   if (consumer.wait()) read(consumer.data());
//   consumer.release();
//
// The producer bounds its bytes in flight. Few suffice to keep memory busy, and what others load in the meantime queues
// behind all of them: while the consumers have yet to begin the phase that is copied, which is when they wait for each
// other and load what comes from other CTAs, the bound is `ahead`; once they have, it is `beside`.
#pragma once

#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/mbarrier.h"
#include "tile/cuda/ptx/proxy_fence.h"
#include "tile/cuda/wait.h"

namespace weft::tile {

#if WEFT_SM >= 90
struct Ring {
  u8* shared;  // 16-byte aligned
  int entries, entry_bytes;

  // Of shared memory: entries, two mbarriers and a number of bytes of each, and how many phases were begun.
  static constexpr int bytes(int entries, int entry_bytes) {
    return (entries * (entry_bytes + 2 * 8 + 4) + 4 + 15) / 16 * 16;
  }
  WEFT_INLINE u8* data(int entry) const { return shared + entry * entry_bytes; }
  WEFT_INLINE u64* full(int entry) const { return reinterpret_cast<u64*>(shared + entries * entry_bytes) + entry; }
  WEFT_INLINE u64* empty(int entry) const { return full(entry) + entries; }
  WEFT_INLINE u32* filled(int entry) const { return reinterpret_cast<u32*>(empty(entries)) + entry; }
  WEFT_INLINE u32* begun() const { return filled(entries); }

  // One thread; others use the ring behind a barrier.
  WEFT_INLINE void init() const {
    for (int i = 0; i < entries; ++i) {
      ptx::mbarrier_init(full(i), 1);
      ptx::mbarrier_init(empty(i), 1);
    }
    ptx::store_relaxed_shared(begun(), 0);
    ptx::fence_mbarrier_init();
  }
  // One thread of the consumers, when they have loaded what a phase begins with: phases are numbered from 0.
  WEFT_INLINE void begin(u32 phase) const { ptx::store_relaxed_shared(begun(), phase + 1); }
};

// False once limit_ns have gone by; 0: waits forever.
WEFT_INLINE bool wait_for(u64* barrier, u32 parity, u64 limit_ns) {
  if (limit_ns == 0) return ptx::mbarrier_wait(barrier, parity), true;
  for (Patience patience(limit_ns); !ptx::mbarrier_try_wait(barrier, parity);)
    if (patience.is_over()) return false;
  return true;
}

// Bytes in flight. An entry that is larger is alone.
struct RingBounds {
  u32 ahead, beside;
};

class RingProducer {
 public:
  WEFT_INLINE RingProducer(const Ring& ring, RingBounds bounds, u64 limit_ns)
      : ring_(ring), bounds_(bounds), limit_ns_(limit_ns) {}

  // Until the next entry is free, and there is room for the bytes in flight; then the entry expects them. False once
  // limit_ns have gone by.
  WEFT_INLINE bool acquire(u32 bytes, u32 phase) {
    const u32 bound = ptx::load_relaxed_shared(ring_.begun()) > phase ? bounds_.beside : bounds_.ahead;
    while (open_ > 0 && in_flight_ + bytes > bound)
      if (!land_oldest()) return false;
    if (!wait_for(ring_.empty(entry_), parity_ ^ 1, limit_ns_)) return false;
    if (open_ == ring_.entries && !land_oldest()) return false;  // the same entry: it was read, so it has landed
    *ring_.filled(entry_) = bytes;
    in_flight_ += bytes;
    ++open_;
    ptx::mbarrier_arrive_expect(full(), bytes);
    return true;
  }
  WEFT_INLINE u8* data() const { return ring_.data(entry_); }
  WEFT_INLINE u64* full() const { return ring_.full(entry_); }
  WEFT_INLINE void advance() { step(entry_, parity_); }

  // Until all copies have landed: shared memory must not end before.
  WEFT_INLINE void drain() {
    while (open_ > 0 && land_oldest()) {
    }
  }

 private:
  WEFT_INLINE void step(int& entry, u32& parity) const {
    if (++entry < ring_.entries) return;
    entry = 0;
    parity ^= 1;
  }
  WEFT_INLINE bool land_oldest() {
    if (!wait_for(ring_.full(oldest_), oldest_parity_, limit_ns_)) return false;
    in_flight_ -= *ring_.filled(oldest_);
    --open_;
    step(oldest_, oldest_parity_);
    return true;
  }

  const Ring& ring_;
  const RingBounds bounds_;
  const u64 limit_ns_;
  int entry_ = 0, oldest_ = 0;  // the latter: of those that nobody has seen land
  u32 parity_ = 0, oldest_parity_ = 0;
  int open_ = 0;       // entries from the oldest one on
  u32 in_flight_ = 0;  // their bytes
};

class RingConsumer {
 public:
  WEFT_INLINE RingConsumer(const Ring& ring, int warp, int warps, u64 limit_ns)
      : ring_(ring), warps_(warps), limit_ns_(limit_ns), entry_(warp), number_(warp) {}

  // Of the warp's next entry, among all that are filled.
  WEFT_INLINE int number() const { return number_; }
  WEFT_INLINE const u8* data() const { return ring_.data(entry_); }
  // All lanes. False once limit_ns have gone by.
  WEFT_INLINE bool wait() const { return wait_for(ring_.full(entry_), parity_, limit_ns_); }
  // All lanes, once they have read the entry.
  WEFT_INLINE void release() {
    ptx::warp_sync();
    if (ptx::lane() == 0) ptx::mbarrier_arrive(ring_.empty(entry_));
    number_ += warps_;
    entry_ += warps_;
    if (entry_ < ring_.entries) return;
    entry_ -= ring_.entries;
    parity_ ^= 1;
  }

 private:
  const Ring& ring_;
  const int warps_;
  const u64 limit_ns_;
  int entry_, number_;
  u32 parity_ = 0;
};
#endif

}  // namespace weft::tile
