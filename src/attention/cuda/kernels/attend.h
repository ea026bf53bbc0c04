// The kernel of attention: every CTA takes the items of a worker's queue, one after another, and whoever comes last at a merge
// group merges it. Instances are written behind the text of a variant (cuda/text.cpp).
#pragma once

#include "attention/cuda/kernels/mma.h"
#include "attention/cuda/kernels/plain.h"
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
    if constexpr (sizeof...(Larger) == 0) {
      Small::attend(call, p, item);
    } else {
      int kind = static_cast<int>(TileKind::direct);
      if (static_cast<int>(item.tile_kind) == kind) return attend_with<Small>(call, p, item);
      ((++kind == static_cast<int>(item.tile_kind) ? attend_with<Larger>(call, p, item) : void()), ...);
    }
  }

 private:
  // A function of its own, with registers of its own: what one class computes ahead takes none from another.
  template <class Class, class P>
  WEFT_NO_INLINE static void attend_with(const Call& call, const P& p, const ItemRecord& item) {
    Class::attend(call, p, item);
  }
};

// A record on its way to shared memory; it is there once the CTA's copies have landed and its threads have met.
WEFT_INLINE void load_record(const PlanHeader* plan, int index, ItemRecord& to) {
  const char* const from = reinterpret_cast<const char*>(plan) + kRecordsOffset + index * sizeof(ItemRecord);
  const int i = ptx::thread_index() * 16;
  if (i < static_cast<int>(sizeof(ItemRecord))) ptx::cp_async_16(reinterpret_cast<char*>(&to) + i, from + i);
  ptx::cp_async_commit();
}

template <class S, class F, class Path>
WEFT_INLINE void attend(const Args<S::kSlots>& args) {
  ptx::wait_for_previous_kernel();
  const Call& call = args.call;
  ItemRecord(&items)[2] = Scratch<S>::of_cta().items;
  int worker = ptx::cta_index();
  load_record(call.plan, worker, items[0]);  // before it is known that the worker exists: there is room for its record
  const typename F::P p = F::P::weft_load(args.params);
  const int num_workers = call.plan->num_workers;
  while (worker < num_workers) {
    bool more = true;
    for (int at = 0; more; at ^= 1) {
      ptx::cp_async_wait<0>();
      ptx::cta_sync();
      const ItemRecord& item = items[at];
      // The next one comes while this one is multiplied.
      more = item.next >= 0;
      if (more) load_record(call.plan, item.next, items[at ^ 1]);
      if (item.num_rows == 0) continue;
      Path::attend(call, p, item);
      if (item.partial >= 0) arrive<S, F>(call, p, item);
    }
    worker += ptx::num_ctas();
    if (worker >= num_workers) break;
    ptx::cta_sync();
    load_record(call.plan, worker, items[0]);
  }
  ptx::cp_async_wait<0>();
  ptx::allow_next_kernel();
}

}  // namespace weft::attention::cuda
