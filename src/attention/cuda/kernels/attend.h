// The kernel of attention: every CTA takes the items of a worker's queue, one after another, and whoever comes last at a merge
// group merges it. Instances are written behind the text of a variant (cuda/text.cpp).
#pragma once

#include "attention/cuda/kernels/mma.h"
#include "attention/cuda/kernels/plain.h"
#include "tile/cuda/ptx/dependent_launch.h"
#include "tile/cuda/ptx/prefetch.h"

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
  WEFT_INLINE static void attend(const Call& call, const P& p, const WorkItem& item, const Unit& unit) {
    if constexpr (sizeof...(Larger) == 0) {
      Small::attend(call, p, item, unit);
    } else {
      int kind = static_cast<int>(TileKind::direct);
      if (static_cast<int>(unit.tile_kind) == kind) return attend_with<Small>(call, p, item, unit);
      ((++kind == static_cast<int>(unit.tile_kind) ? attend_with<Larger>(call, p, item, unit) : void()), ...);
    }
  }

 private:
  // A function of its own, with registers of its own: what one class computes ahead takes none from another.
  template <class Class, class P>
  WEFT_NO_INLINE static void attend_with(const Call& call, const P& p, const WorkItem& item, const Unit& unit) {
    Class::attend(call, p, item, unit);
  }
};

// What later items of a worker begin with comes to the cache while the first ones run: each is a chain of loads.
WEFT_INLINE void look_ahead(const PlanHeader& plan, const WorkItem* items, const Unit* units, int begin, int end) {
  const int i = begin + ptx::thread_index();
  if (i >= end) return;
  const WorkItem& item = items[i];
  const Unit& unit = units[item.unit];
  const PageList& list = section<PageList>(&plan, plan.page_lists)[unit.page_list];
  ptx::prefetch(section<PlanRow>(&plan, plan.rows) + unit.row_begin);
  ptx::prefetch(section<MergeGroup>(&plan, plan.merge_groups) + unit.merge_begin);
  if (item.partial >= 0) ptx::prefetch(section<Partial>(&plan, plan.partials) + item.partial);
  const i64 page = plan.page_size > 0 ? item.kv_begin / plan.page_size : 0;
  if (plan.page_indices.count > 0) ptx::prefetch(section<int>(&plan, plan.page_indices) + list.first + page);
}

template <class S, class F, class Path>
WEFT_INLINE void attend(const Args<S::kSlots>& args) {
  ptx::wait_for_previous_kernel();
  const Call& call = args.call;
  const PlanHeader& plan = *call.plan;
  const typename F::P p = F::P::weft_load(args.params);
  const int* const indptr = section<int>(&plan, plan.worker_indptr);
  const WorkItem* const items = section<WorkItem>(&plan, plan.items);
  const Unit* const units = section<Unit>(&plan, plan.units);
  for (int worker = ptx::cta_index(); worker < plan.num_workers; worker += ptx::num_ctas()) {
    const int end = indptr[worker + 1];
    look_ahead(plan, items, units, indptr[worker] + 1, end);
    for (int i = indptr[worker]; i < end; ++i) {
      const WorkItem& item = items[i];
      const Unit& unit = units[item.unit];
      Path::attend(call, p, item, unit);
      if (item.partial >= 0) arrive<S, F>(call, p, unit);
    }
  }
  ptx::allow_next_kernel();
}

}  // namespace weft::attention::cuda
