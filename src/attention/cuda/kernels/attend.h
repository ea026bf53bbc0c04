// The kernel of attention: every CTA, or S::kPartners that share an item's rows, takes the items of a worker's queue,
// one after another, and whoever comes last at a merge group merges it. Instances are written behind the text of a
// variant (cuda/text.cpp).
#pragma once

#include "attention/cuda/kernels/latent.h"
#include "attention/cuda/kernels/merge_apart.h"
#include "attention/cuda/kernels/plain.h"
#include "attention/cuda/kernels/plan_copy.h"
#include "attention/cuda/kernels/producer.h"
#include "attention/cuda/kernels/wgmma.h"
#include "tile/cuda/ptx/dependent_launch.h"

namespace weft::attention::cuda {

// A path with a class for each kind of tile, those of more rows behind those of fewer.
template <class Small, class... Larger>
struct Tiles {
  static constexpr bool kAreAlike = sizeof...(Larger) > 1 && (true && ... && Larger::kIsAlike);
  static constexpr int kMostRows = [] {
    int most = 0;
    ((most = Larger::kRows > most ? Larger::kRows : most), ...);
    return most;
  }();
  static constexpr int kSharedBytes = [] {
    int most = Small::kSharedBytes;
    ((most = Larger::kSharedBytes > most ? Larger::kSharedBytes : most), ...);
    return most;
  }();
  template <class P>
  WEFT_INLINE static void attend(const Call& call, const P& p, const ItemRecord& item) {
    int kind = static_cast<int>(TileKind::direct);
    if (sizeof...(Larger) == 0 || static_cast<int>(item.tile_kind) == kind) return Small::attend(call, p, item);
    // Units may have more rows than a tile, as a producer's have: the rest takes the smallest that holds it.
    if constexpr (kAreAlike)
      for_row_tiles<kMostRows>(call, item, [&](int kv_head, int first, int n) {
        bool more = true;
        ((more && n <= Larger::kRows ? (Larger::attend(call, p, item, kv_head, first, n), more = false) : false), ...);
      });
    else
      ((++kind == static_cast<int>(item.tile_kind) ? Larger::attend(call, p, item) : void()), ...);
  }
};

template <class S, class F, class Path, class Args>
WEFT_INLINE void attend(const Args& args) {
  ptx::allow_next_kernel();  // all CTAs are there at once: the next one's take no room of theirs
  const Call& call = args.call;
  Scratch<S>& scratch = Scratch<S>::of_cta();
  ItemRecord(&items)[2] = scratch.items;
  int worker = ptx::cta_index() / S::kPartners;
  const auto load_record = [&](int index, ItemRecord& to) {
    copy_record(call.plan, index, to, ptx::thread_index(), ptx::num_threads());
    ptx::cp_async_commit();
  };
  copy_plan(call.plan, 0, &scratch.header, sizeof(PlanHeader), ptx::thread_index(), ptx::num_threads());
  load_record(worker, items[0]);  // before it is known that the worker exists: there is room for its record
  const typename F::P p = F::P::weft_load(args.params);
  if constexpr (S::kBlockSparse)
    if (call.lists_are_new) ptx::wait_for_previous_kernel();  // items are as the host made them
  for (bool is_first = true;; is_first = false) {
    if (!is_first) load_record(worker, items[0]);
    bool more = true;
    for (int at = 0; more; at ^= 1) {
      ptx::cp_async_wait<0>();
      ptx::cta_sync();
      if (worker >= header().num_workers) break;
      const ItemRecord& item = items[at];
      // The next one comes while this one is multiplied.
      more = item.next >= 0;
      if (more) load_record(item.next, items[at ^ 1]);
      if (item.num_rows == 0) continue;
      Path::attend(call, p, item);
      if (item.partial >= 0 && !merges_apart<S>()) arrive<S, F>(call, p, item);
    }
    worker += ptx::num_ctas() / S::kPartners;
    if (worker >= header().num_workers) break;
    ptx::cta_sync();
  }
  ptx::wait_for_previous_kernel();  // without items, too: who waits for this kernel waits for those before it
}

}  // namespace weft::attention::cuda
