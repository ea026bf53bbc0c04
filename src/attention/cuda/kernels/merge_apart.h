// Partial states merged by a kernel behind attention's, of plans of one level: all multiprocessors share them, where
// the CTA that comes last would merge a request's alone. A state is the work of kMergeShares warps, and sums are in the
// same order.
#pragma once

#include "attention/cuda/kernels/merge.h"
#include "attention/cuda/kernels/plan_copy.h"
#include "tile/cuda/ptx/dependent_launch.h"

namespace weft::attention::cuda {

inline constexpr int kMergeShares = 4;

// Of the CTA, at the beginning of its shared memory.
struct MergeShared {
  alignas(16) PlanHeader header;
  // Items that begin a unit of several chunks, and how many states lie before the unit's.
  int records[kMergeThreads], before[kMergeThreads];
  int units_of_warps[kMergeThreads / 32], states_of_warps[kMergeThreads / 32];
};
static_assert(sizeof(MergeShared) <= kMergeSharedBytes);

// The sum of x over the threads before this one; `all`: over all of them. `of_warps` is free behind the next barrier.
WEFT_INLINE int sum_of_threads_before(int x, int* of_warps, int& all) {
  int sum = x;
  WEFT_UNROLL
  for (int d = 1; d < 32; d *= 2) {
    const int before = static_cast<int>(ptx::shuffle(static_cast<u32>(sum), (ptx::lane() - d) & 31));
    sum += ptx::lane() >= d ? before : 0;
  }
  if (ptx::lane() == 31) of_warps[ptx::warp()] = sum;
  ptx::cta_sync();
  int before = sum - x;
  all = 0;
  WEFT_NO_UNROLL
  for (int warp = 0; warp < kMergeThreads / 32; ++warp) {
    before += warp < ptx::warp() ? of_warps[warp] : 0;
    all += of_warps[warp];
  }
  return before;
}

template <class S, class F, class Args>
WEFT_INLINE void merge_apart(const Args& args) {
  ptx::allow_next_kernel();
  const Call& call = args.call;
  auto& shared = *reinterpret_cast<MergeShared*>(ptx::shared_memory());
  copy_plan(call.plan, 0, &shared.header, sizeof(PlanHeader), ptx::thread_index(), kMergeThreads);
  ptx::cp_async_commit();
  const typename F::P p = F::P::weft_load(args.params);
  ptx::cp_async_wait<0>();
  ptx::cta_sync();
  ptx::wait_for_previous_kernel();  // it wrote the partials
  if (header().num_levels > 1) return;
  const auto* const records =
      reinterpret_cast<const ItemRecord*>(reinterpret_cast<const char*>(call.plan) + kRecordsOffset);
  const int num_records = static_cast<int>(header().records.count);
  // Of shares of states, counted over all units, this warp has every so-many-th.
  const int warps = ptx::num_ctas() * (kMergeThreads / 32);
  int next = ptx::cta_index() * (kMergeThreads / 32) + ptx::warp(), states_before = 0;
  WEFT_NO_UNROLL
  for (int first = 0; first < num_records; first += kMergeThreads) {
    const int own = first + ptx::thread_index();
    int states = 0;
    if (own < num_records) {
      const ItemRecord& item = records[own];
      if (item.num_rows > 0 && item.partial >= 0 && item.chunk == 0)
        states = item.num_rows * (item.kv_head_end - item.kv_head_begin) * call.group_size;
    }
    int num_units, num_states;
    const int unit = sum_of_threads_before(states > 0 ? 1 : 0, shared.units_of_warps, num_units);
    const int before = sum_of_threads_before(states, shared.states_of_warps, num_states);
    if (states > 0) {
      shared.records[unit] = own;
      shared.before[unit] = states_before + before;
    }
    ptx::cta_sync();
    states_before += num_states;
    WEFT_NO_UNROLL
    for (int i = 0; i < num_units; ++i) {
      const int begin = shared.before[i], end = i + 1 < num_units ? shared.before[i + 1] : states_before;
      if (next >= end * kMergeShares) continue;
      const ItemRecord item = records[shared.records[i]];
      const MergeGroup group = group_of_unit(item);
      const Merge<S, F, kMergeShares> of_unit(call, p, item, group, nullptr);
      WEFT_NO_UNROLL
      for (; next < end * kMergeShares; next += warps) of_unit.merge(next / kMergeShares - begin, next % kMergeShares);
    }
    ptx::cta_sync();
  }
}

}  // namespace weft::attention::cuda
