// A barrier of all CTAs of a cooperative launch: what any of them wrote before it, all of them read behind it. (Bulk
// copies read it behind fence_async_global().) Its word lies in global memory and is 0 before the first launch; the
// barrier leaves it as the next one needs it, in this launch or a later one. A launch that ends early, or fails, leaves
// a word that must be set to 0.
//
//   grid_sync(args.arrived);                                                        // all threads of all CTAs
//   grid_sync(args.arrived, thread == 0, [] { ptx::named_sync(1, 256); });          // a group of warps of each
#pragma once

#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::tile {

// The highest bit turns when all have arrived, and the others are 0 again: one CTA adds what the others leave open.
inline constexpr u32 kGridTurn = 0x8000'0000u;

// One thread of each CTA, behind a barrier of the threads that it stands for. What it returns goes to grid_is_over.
WEFT_INLINE u32 grid_arrive(u32* word) {
  const u32 others = static_cast<u32>(ptx::num_ctas() - 1);
  return ptx::atomic_add_release(word, ptx::cta_index() == 0 ? kGridTurn - others : 1u);
}
// Whether all have arrived. The same thread; behind it a barrier for those it stands for.
WEFT_INLINE bool grid_is_over(const u32* word, u32 arrival) {
  return ((ptx::load_acquire(word) ^ arrival) & kGridTurn) != 0;
}

// sync() is a barrier of the threads that call, of which one is the leader.
template <class Sync>
WEFT_INLINE void grid_sync(u32* word, bool is_leader, const Sync& sync) {
  sync();
  if (is_leader) {
    const u32 arrival = grid_arrive(word);
    while (!grid_is_over(word, arrival)) {
    }
  }
  sync();
}
WEFT_INLINE void grid_sync(u32* word) {
  grid_sync(word, ptx::thread_index() == 0, [] { ptx::cta_sync(); });
}

}  // namespace weft::tile
