// The kernel of attention: every CTA takes the items of a worker's queue, one after another, and whoever comes last at a merge
// group merges it. Instances are written behind the text of a variant (cuda/text.cpp).
#pragma once

#include "attention/cuda/kernels/mma.h"
#include "attention/cuda/kernels/plain.h"
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
  WEFT_INLINE static void attend(const Call& call, const P& p, const WorkItem& item, const Unit& unit) {
    int kind = static_cast<int>(TileKind::direct);
    if (sizeof...(Larger) == 0 || static_cast<int>(unit.tile_kind) == kind) return Small::attend(call, p, item, unit);
    ((++kind == static_cast<int>(unit.tile_kind) ? Larger::attend(call, p, item, unit) : void()), ...);
  }
};

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
