// Stages of shared memory between one thread that fills them by copies, or several that store there themselves, far
// ahead, and warpgroups that multiply what is there (from sm_90 on). Stages follow each other whatever is multiplied,
// over tiles and items: everybody walks them in the same order.
//
//   if (thread == 0) { barriers.init(1, 2);  ptx::fence_mbarrier_init(); }    // one thread fills, two warpgroups empty
//   cta_sync();
//   StageWalk<2> filled(barriers);                                                       // one thread
//   tensor_load(tile(filled.stage()), map, at, filled.fill(bytes), policy);  filled.advance();
//   StageWalk<2> walk(barriers);                                                         // each thread that multiplies
//   walk.wait();  multiply_async(d, tile(walk.stage()), ...);  wgmma_commit();  wgmma_wait<0>(d);
//   walk.release();  walk.advance();
#pragma once

#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/cp_async.h"
#include "tile/cuda/ptx/mbarrier.h"
#include "tile/cuda/ptx/proxy_fence.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::tile {

#if WEFT_SM >= 90
// In shared memory.
template <int kStages>
struct StageBarriers {
  u64 full[kStages], empty[kStages];

  // One thread; others use them behind fence_mbarrier_init() and a barrier. Threads that fill each stage, and
  // warpgroups that release it, or threads that leave it.
  WEFT_INLINE void init(int fillers, int leavers) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(&full[i], static_cast<u32>(fillers));
      ptx::mbarrier_init(&empty[i], static_cast<u32>(leavers));
    }
  }
  // One thread, when nobody uses them any more: others may begin there.
  WEFT_INLINE void end() {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_inval(&full[i]);
      ptx::mbarrier_inval(&empty[i]);
    }
  }
};

template <int kStages>
class StageWalk {
 public:
  // From stage `number` of all on.
  WEFT_INLINE explicit StageWalk(StageBarriers<kStages>& barriers, u32 number = 0)
      : barriers_(barriers), number_(number) {}
  WEFT_INLINE StageWalk previous() const { return StageWalk(barriers_, number_ - 1); }
  WEFT_INLINE u32 number() const { return number_; }
  WEFT_INLINE int stage() const { return static_cast<int>(number_ % kStages); }

  // A stage that threads fill themselves: waits until it is empty; then, behind this thread's stores, arrives.
  WEFT_INLINE void wait_for_room() const { ptx::mbarrier_wait(&barriers_.empty[stage()], parity() ^ 1); }
  WEFT_INLINE void filled() const {
    ptx::fence_async_shared();
    ptx::mbarrier_arrive(&barriers_.full[stage()]);
  }
  // In place of filled(): arrives when this thread's copies (ptx/cp_async.h) have landed. Those who multiply the stage
  // call fence_async_shared() behind wait().
  WEFT_INLINE void fill_behind_copies() const {
    ptx::cp_async_arrive(&barriers_.full[stage()]);
    ptx::mbarrier_arrive(&barriers_.full[stage()]);
  }
  // A stage that bulk copies fill: waits until it is empty, expects so many bytes, returns the copies' mbarrier.
  WEFT_INLINE u64* fill(u32 bytes) const {
    wait_for_room();
    ptx::mbarrier_arrive_expect(&barriers_.full[stage()], bytes);
    return &barriers_.full[stage()];
  }
  // All threads of a warpgroup: waits until the stage is filled.
  WEFT_INLINE void wait() const { ptx::mbarrier_wait(&barriers_.full[stage()], parity()); }
  // All threads of a warpgroup, behind the wait for their products: the stage is empty.
  WEFT_INLINE void release() const {
    if (ptx::opaque(ptx::thread_index()) % 128 == 0) ptx::mbarrier_arrive(&barriers_.empty[stage()]);
  }
  // In place of release() where each thread arrives: those that load and store there themselves.
  WEFT_INLINE void leave() const { ptx::mbarrier_arrive(&barriers_.empty[stage()]); }
  WEFT_INLINE void advance() { ++number_; }

 private:
  WEFT_INLINE u32 parity() const { return number_ / kStages % 2; }

  StageBarriers<kStages>& barriers_;
  u32 number_;  // of the stage, among all that are walked: one register, from which the rest follows
};

// Turns of the CTA's first kGroups warpgroups: what one does in its turn, the next one does when it has given it. The
// first turn is warpgroup 0's. They take named barriers from kFirstBarrier on.
template <int kGroups, int kFirstBarrier = 1>
class Turns {
 public:
  // All threads of these warpgroups, once.
  WEFT_INLINE static void begin() {
    if (group() == kGroups - 1) give();
  }
  WEFT_INLINE static void wait() { ptx::named_sync(kFirstBarrier + group(), 256); }
  WEFT_INLINE static void give() { ptx::named_arrive(kFirstBarrier + (group() + 1) % kGroups, 256); }

 private:
  // Found again each time, instead of taking registers.
  WEFT_INLINE static int group() { return ptx::opaque(ptx::thread_index()) / 128; }
};
#endif

}  // namespace weft::tile
