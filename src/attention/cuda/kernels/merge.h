// Partial states become one state, in plan order; whoever arrives last at a merge group merges it.
//   o = sum_i w_i o_i / sum_i w_i,  lse = max + log(sum_i w_i),  w_i = exp(lse_i - max)
// Empty states (lse = -inf) weigh nothing and are not read. Without softmax o is the plain sum.
#pragma once

#include "attention/cuda/kernels/output.h"
#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/softmax.h"

namespace weft::attention::cuda {

// What the weights of states are relative to, their largest lse; a finite number where all are empty.
WEFT_INLINE float finite_base(float largest) { return largest == -infinity() ? 0.f : largest; }
WEFT_INLINE float exp_fast(float x) { return ptx::exp2_fast(x * tile::kLog2E); }
WEFT_INLINE float lse_of(float base, float sum) {
  return sum == 0.f ? -infinity() : base + ptx::log2_fast(sum) * tile::kLn2;
}

// The same of a base that is relative to 2: a logit times log2(e).
WEFT_INLINE float lse_of_base2(float base, float sum) {
  return sum == 0.f ? -infinity() : (base + ptx::log2_fast(sum)) * tile::kLn2;
}

// One state of a group by one warp; `o`: kDimVo floats of its own.
template <class S, class F>
WEFT_INLINE void merge_state(const Call& call, const typename F::P& p, const MergeGroup& group, int row, int head,
                             float* o) {
  const PlanHeader& plan = *call.plan;
  const MergeSource* const sources = section<MergeSource>(&plan, plan.merge_sources);
  const auto state_of = [&](int s) {
    return partial_state(call, sources[s].partial, sources[s].row_offset + row - group.row_begin, head);
  };
  constexpr int kPerLane = (S::kDimVo + 31) / 32;
  float sums[kPerLane] = {}, base = 0, total = 0;
  if constexpr (F::kSoftmax) {
    float largest = -infinity();
    for (int s = group.source_begin; s < group.source_end; ++s) largest = ptx::larger(largest, *state_of(s).lse);
    base = finite_base(largest);
  }
  for (int s = group.source_begin; s < group.source_end; ++s) {
    const PartialState state = state_of(s);
    float weight = 1;
    if constexpr (F::kSoftmax) {
      const float lse = *state.lse;
      if (lse == -infinity()) continue;
      weight = exp_fast(lse - base);
      total += weight;
    }
    WEFT_UNROLL
    for (int i = 0; i < kPerLane; ++i)
      if (const int at = ptx::lane() + 32 * i; at < S::kDimVo) sums[i] += weight * state.o[at];
  }
  const float factor = !F::kSoftmax ? 1.f : total == 0.f ? 0.f : 1.f / total;
  WEFT_UNROLL
  for (int i = 0; i < kPerLane; ++i)
    if (const int at = ptx::lane() + 32 * i; at < S::kDimVo) o[at] = sums[i] * factor;
  ptx::warp_sync();
  const PlanRow& of = section<PlanRow>(&plan, plan.rows)[row];
  write_output<S, F>(call, p, {of.q_row, of.request, of.idx, of.pos, head}, o, F::kSoftmax ? lse_of(base, total) : 0.f);
  ptx::warp_sync();
}

// Of the CTA, at the beginning of its shared memory: a vector of any kind for each warp, and a word for each thread.
template <class S>
struct Scratch {
  static constexpr int kDim = S::kDimQk > S::kDimVo ? S::kDimQk : S::kDimVo;
  alignas(16) float vectors[S::kThreads / 32][kDim];
  int last[S::kThreads];
  WEFT_INLINE static Scratch& of_cta() { return *reinterpret_cast<Scratch*>(ptx::shared_memory()); }
};

// The item of a unit that wrote a partial is done: counts at the unit's groups, and merges those where all have come.
template <class S, class F>
WEFT_INLINE void arrive(const Call& call, const typename F::P& p, const Unit& unit) {
  const PlanHeader& plan = *call.plan;
  Scratch<S>& scratch = Scratch<S>::of_cta();
  int* const last = scratch.last;
  const MergeGroup* const groups = section<MergeGroup>(&plan, plan.merge_groups);
  unsigned* const counters = section<unsigned>(&plan, plan.counters);
  const int num_groups = unit.merge_rows * unit.merge_heads;
  const auto group_of = [&](int k) -> const MergeGroup& {
    return groups[unit.merge_begin + k / unit.merge_heads * plan.merge_stride + k % unit.merge_heads];
  };
  ptx::cta_sync();  // the partial is whole
  for (int first = 0; first < num_groups; first += S::kThreads) {
    const int n = num_groups - first < S::kThreads ? num_groups - first : S::kThreads;
    if (ptx::thread_index() < n) {
      const MergeGroup& group = group_of(first + ptx::thread_index());
      // Releases what the CTA wrote before the barrier, acquires the partials of those who came before.
      const unsigned before = ptx::atomic_add_acq_rel(counters + group.counter, 1);
      last[ptx::thread_index()] = static_cast<int>(before) + 1 == group.expected;
      if (last[ptx::thread_index()]) counters[group.counter] = 0;
    }
    ptx::cta_sync();
    for (int k = 0; k < n; ++k) {
      if (!last[k]) continue;
      const MergeGroup& group = group_of(first + k);
      const int heads = (group.kv_head_end - group.kv_head_begin) * call.group_size;
      for (int i = ptx::warp(); i < (group.row_end - group.row_begin) * heads; i += S::kThreads / 32)
        merge_state<S, F>(call, p, group, group.row_begin + i / heads,
                          group.kv_head_begin * call.group_size + i % heads, scratch.vectors[ptx::warp()]);
    }
    ptx::cta_sync();
  }
}

}  // namespace weft::attention::cuda
