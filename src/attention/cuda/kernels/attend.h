// The kernel of attention: every CTA, or S::kPartners that share an item's rows, takes the items of a worker's queue,
// one after another, and whoever comes last at a merge group merges it. Instances are written behind the text of a variant (cuda/text.cpp).
#pragma once

#include "attention/cuda/kernels/latent.h"
#include "attention/cuda/kernels/plain.h"
#include "attention/cuda/kernels/wgmma.h"
#include "tile/cuda/ptx/cp_async.h"
#include "tile/cuda/ptx/dependent_launch.h"

namespace weft::attention::cuda {

// A path with a class for each kind of tile.
template <class Small, class... Larger>
struct Tiles {
  static constexpr int kSharedBytes = [] {
    int most = Small::kSharedBytes;
    ((most = Larger::kSharedBytes > most ? Larger::kSharedBytes : most), ...);
    return most;
  }();
  template <class P>
  WEFT_INLINE static void attend(const Call& call, const P& p, const ItemRecord& item) {
    int kind = static_cast<int>(TileKind::direct);
    if (sizeof...(Larger) == 0 || static_cast<int>(item.tile_kind) == kind) return Small::attend(call, p, item);
    ((++kind == static_cast<int>(item.tile_kind) ? Larger::attend(call, p, item) : void()), ...);
  }
};

// Some of the plan's bytes on their way to shared memory; they are there once the CTA's copies have landed and its
// threads have met. A multiple of 16.
WEFT_INLINE void load(const PlanHeader* plan, i64 offset, void* to, int bytes) {
  const char* const from = reinterpret_cast<const char*>(plan) + offset;
  for (int at = ptx::thread_index() * 16; at < bytes; at += ptx::num_threads() * 16)
    ptx::cp_async_16(static_cast<char*>(to) + at, from + at);
}
WEFT_INLINE void load_record(const PlanHeader* plan, int index, ItemRecord& to) {
  constexpr int kBytes = sizeof(ItemRecord);
  load(plan, kRecordsOffset + static_cast<i64>(index) * kBytes, &to, kBytes);
  ptx::cp_async_commit();
}

template <class S, class F, class Path>
WEFT_INLINE void attend(const Args<S::kSlots>& args) {
  ptx::allow_next_kernel();  // all CTAs are there at once: the next one's take no room of theirs
  const Call& call = args.call;
  Scratch<S>& scratch = Scratch<S>::of_cta();
  ItemRecord(&items)[2] = scratch.items;
  int worker = ptx::cta_index() / S::kPartners;
  load(call.plan, 0, &scratch.header, sizeof(PlanHeader));
  load_record(call.plan, worker, items[0]);  // before it is known that the worker exists: there is room for its record
  const typename F::P p = F::P::weft_load(args.params);
  for (bool is_first = true;; is_first = false) {
    if (!is_first) load_record(call.plan, worker, items[0]);
    bool more = true;
    for (int at = 0; more; at ^= 1) {
      ptx::cp_async_wait<0>();
      ptx::cta_sync();
      if (worker >= header().num_workers) break;
      const ItemRecord& item = items[at];
      // The next one comes while this one is multiplied.
      more = item.next >= 0;
      if (more) load_record(call.plan, item.next, items[at ^ 1]);
      if (item.num_rows == 0) continue;
      Path::attend(call, p, item);
      if (item.partial >= 0) arrive<S, F>(call, p, item);
    }
    worker += ptx::num_ctas() / S::kPartners;
    if (worker >= header().num_workers) break;
    ptx::cta_sync();
  }
  ptx::wait_for_previous_kernel();  // without items, too: who waits for this kernel waits for those before it
}

}  // namespace weft::attention::cuda
