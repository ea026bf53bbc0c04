// A ring of bytes in shared memory, between one thread that fills it, by bulk copies or with the cp.async of all lanes
// of its warp, and warps that empty it (from sm_90 on). What is loaded, waited for and released as one is an entry;
// entries have sizes of their own, and follow each other in the ring. An entry belongs to one warp, which waits for it,
// reads it and releases it alone: entry number i to warp i % warps. At most `entries` are in use at once, a multiple of
// the warps: else a warp could be a round ahead of an entry's other readers, and would take the parity of the round
// before last for its own.
//
//   const Ring ring{shared, 192 << 10, 16};
//   if (thread == 0) ring.init();
//   cta_sync();
//   RingProducer producer(ring, {.ahead = 36 << 10, .beside = 64 << 10}, limit_ns);          // one thread
//   if (!producer.acquire(bytes, phase)) return producer.drain();
//   bulk_copy(producer.data(), from, bytes, producer.full());
//   producer.advance();
//   if (!producer.acquire_for_lanes(bytes, loaded, phase)) return producer.drain();          // or: one thread,
//   warp_sync();  cp_async_16(producer.data() + ..., ...);  cp_async_arrive(producer.full());  // its warp,
//   warp_sync();  producer.arrive();  producer.advance();                                    // and the one thread
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
  u8* shared;          // 16-byte aligned
  int bytes, entries;  // the former a multiple of 16, and as large as any entry at least

  // Where an entry lies, and what the producer counts by: words of each.
  struct Place {
    u32 at, bytes;
    u32 span;  // with the end of the ring that was too small for it: a multiple of 16; plus 1 if lanes filled it
  };
  // Of shared memory: the ring, two mbarriers and the place of each entry, and how many phases were begun.
  static constexpr int size(int bytes, int entries) {
    return (bytes + entries * (2 * 8 + static_cast<int>(sizeof(Place))) + 4 + 15) / 16 * 16;
  }
  WEFT_INLINE u64* full(int entry) const { return reinterpret_cast<u64*>(shared + bytes) + entry; }
  WEFT_INLINE u64* empty(int entry) const { return full(entry) + entries; }
  WEFT_INLINE Place* place(int entry) const { return reinterpret_cast<Place*>(empty(entries)) + entry; }
  WEFT_INLINE u32* begun() const { return reinterpret_cast<u32*>(place(entries)); }

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

  // Until there is room for the next entry, in the ring and among the bytes in flight; then the entry expects so many
  // bytes of bulk copies. False once limit_ns have gone by.
  WEFT_INLINE bool acquire(u32 bytes, u32 phase) {
    if (!take(bytes, bytes, phase, false)) return false;
    if (lanes_wrote_) ptx::fence_async_shared();
    lanes_wrote_ = false;
    ptx::mbarrier_arrive_expect(full(), bytes);
    return true;
  }
  // The same for cp.async of the warp's lanes, `loaded` bytes of them, no more than the entry has. Behind a barrier of
  // the warp all its lanes copy and call cp_async_arrive(full()); behind the next one the thread calls arrive().
  WEFT_INLINE bool acquire_for_lanes(u32 bytes, u32 loaded, u32 phase) { return take(bytes, loaded, phase, true); }
  WEFT_INLINE void arrive() const { ptx::mbarrier_arrive(full()); }
  WEFT_INLINE u8* data() const { return ring_.shared + at_; }
  WEFT_INLINE u64* full() const { return ring_.full(next_.entry); }
  WEFT_INLINE void advance() {
    at_ += own_;
    step(next_);
  }

  // Until all copies have landed: shared memory must not end before.
  WEFT_INLINE void drain() {
    while (landed_.number < next_.number && land_oldest()) {
    }
  }

 private:
  // Entries in their order: the next one, the oldest that nobody has seen land, the oldest that is not known to be
  // free.
  struct Position {
    int number = 0, entry = 0;
    u32 parity = 0;
  };
  WEFT_INLINE bool take(u32 bytes, u32 loaded, u32 phase, bool for_lanes) {
    const u32 bound = ptx::load_relaxed_shared(ring_.begun()) > phase ? bounds_.beside : bounds_.ahead;
    while (landed_.number < next_.number && in_flight_ + loaded > bound)
      if (!land_oldest()) return false;
    const u32 size = static_cast<u32>(ring_.bytes);
    own_ = (bytes + 15) / 16 * 16;
    const bool fits = at_ + own_ <= size;
    const u32 span = fits ? own_ : size - at_ + own_;
    while (freed_.number < next_.number && (next_.number - freed_.number == ring_.entries || used_ + span > size))
      if (!free_oldest()) return false;
    if (!fits || used_ == 0) at_ = 0;
    const u32 taken = used_ == 0 ? own_ : span;
    *ring_.place(next_.entry) = {at_, loaded, taken | static_cast<u32>(for_lanes)};
    used_ += taken;
    in_flight_ += loaded;
    return true;
  }
  WEFT_INLINE void step(Position& position) const {
    ++position.number;
    if (++position.entry < ring_.entries) return;
    position.entry = 0;
    position.parity ^= 1;
  }
  WEFT_INLINE bool land_oldest() {
    if (!wait_for(ring_.full(landed_.entry), landed_.parity, limit_ns_)) return false;
    in_flight_ -= ring_.place(landed_.entry)->bytes;
    step(landed_);
    return true;
  }
  WEFT_INLINE bool free_oldest() {
    if (!wait_for(ring_.empty(freed_.entry), freed_.parity, limit_ns_)) return false;
    if (landed_.number == freed_.number && !land_oldest()) return false;  // it was read, so it has landed
    const u32 span = ring_.place(freed_.entry)->span;
    lanes_wrote_ = lanes_wrote_ || span % 16 != 0;
    used_ -= span / 16 * 16;
    step(freed_);
    return true;
  }

  const Ring ring_;
  const RingBounds bounds_;
  const u64 limit_ns_;
  Position next_, landed_, freed_;
  u32 at_ = 0, own_ = 0;  // of the next entry
  u32 used_ = 0, in_flight_ = 0;
  bool lanes_wrote_ = false;  // what is free now, by cp.async: a bulk copy goes there behind a fence
};

class RingConsumer {
 public:
  WEFT_INLINE RingConsumer(const Ring& ring, int warp, int warps, u64 limit_ns)
      : ring_(ring), warps_(warps), limit_ns_(limit_ns), entry_(warp), number_(warp) {}

  // Of the warp's next entry, among all that are filled.
  WEFT_INLINE int number() const { return number_; }
  // Once it was waited for.
  WEFT_INLINE u8* data() const { return ring_.shared + ring_.place(entry_)->at; }
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
  const Ring ring_;
  const int warps_;
  const u64 limit_ns_;
  int entry_, number_;
  u32 parity_ = 0;
};
#endif

}  // namespace weft::tile
