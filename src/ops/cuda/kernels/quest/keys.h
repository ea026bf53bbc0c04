// Keys of a list's competing pages: their bounds, ordered as integers.
#pragma once

#include "ops/cuda/kernels/quest_args.h"
#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/cluster.h"
#include "tile/cuda/ptx/math.h"
#include "tile/cuda/ptx/thread.h"
#include "tile/cuda/select.h"

namespace weft::ops {

// The CTAs of a list make its keys together. From sm_90 on these are a cluster, and each gets all keys into its shared
// memory, so that each writes its share of what is chosen. Before that, and where shared memory has no room, keys go
// through memory; before sm_90 the last CTA that is done chooses alone.
//
//   ListKeys::begin();
//   ListKeys keys(args, index, part, n, shared);
//   ListKeys::wait_for_others();  keys.put<4>(page, key, lane % 4);  ...
//   if (keys.join()) ... keys.all()[page] ...
class ListKeys {
 public:
#if WEFT_SM >= 90
  static constexpr bool kInCluster = true;
#else
  static constexpr bool kInCluster = false;
#endif
  struct Shared {
    u32 keys[kKeyWords];
    u32 is_last;
  };

  // Between the two keys may not be put.
  WEFT_INLINE static void begin() {
#if WEFT_SM >= 90
    ptx::cluster_arrive_relaxed();
#endif
  }
  WEFT_INLINE static void wait_for_others() {
#if WEFT_SM >= 90
    ptx::cluster_wait();  // their shared memory is there
#endif
  }

  WEFT_INLINE ListKeys(const ChooseArgs& args, int index, int part, int n, Shared& shared)
      : shared_(shared),
        in_memory_(args.keys + static_cast<i64>(index) * args.requests.most_pages),
        done_(args.done + index),
        parts_(args.parts),
        part_(part),
        n_(n) {}

  // Of `count` pages, or groups of them, those that this CTA bounds.
  struct Share {
    int begin, end;
  };
  WEFT_INLINE Share share_of(int count) const {
    const u32 all = static_cast<u32>(count + parts_ - 1), parts = static_cast<u32>(parts_);
    const int each = static_cast<int>(kInCluster ? all >> ptx::count_bits(parts - 1) : all / parts);  // a power of two
    const int begin = part_ * each < count ? part_ * each : count;
    return {begin, begin + each < count ? begin + each : count};
  }
  // And those that it writes of what is chosen.
  WEFT_INLINE Share share_to_write(int count) const { return kInCluster ? share_of(count) : Share{0, count}; }

  // By kLanes lanes that have the page's key, each with its number among them.
  template <int kLanes>
  WEFT_INLINE void put(int page, u32 key, int lane) const {
#if WEFT_SM >= 90
    if (fits()) {
      WEFT_NO_UNROLL
      for (int rank = lane; rank < parts_; rank += kLanes) ptx::cluster_shared(shared_.keys, rank)[page] = key;
      return;
    }
#endif
    if (lane == 0) in_memory_[page] = key;
  }

  // All threads of all the list's CTAs, once: whether this one chooses, with all keys there.
  WEFT_INLINE bool join() const {
#if WEFT_SM >= 90
    ptx::cluster_arrive();
    ptx::cluster_wait();
    return true;
#else
    ptx::cta_sync();
    if (ptx::thread_index() == 0)
      shared_.is_last = ptx::atomic_add_acq_rel(done_, 1) + 1 == static_cast<u32>(parts_) ? 1 : 0;
    ptx::cta_sync();
    if (shared_.is_last == 0) return false;
    if (ptx::thread_index() == 0) *done_ = 0;  // for the next launch
    for (int i = ptx::thread_index(); fits() && i < n_; i += kQuestThreads) shared_.keys[i] = in_memory_[i];
    ptx::cta_sync();
    return true;
#endif
  }
  WEFT_INLINE const u32* all() const { return fits() ? shared_.keys : in_memory_; }

 private:
  WEFT_INLINE bool fits() const { return n_ <= kKeyWords; }

  Shared& shared_;
  u32* const in_memory_;
  u32* const done_;
  const int parts_, part_, n_;
};

}  // namespace weft::ops
