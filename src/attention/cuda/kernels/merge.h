// Partial states become one state, in plan order; whoever arrives last at a merge group merges it.
//   o = sum_i w_i o_i / sum_i w_i,  lse = max + log(sum_i w_i),  w_i = exp(lse_i - max)
// where the lse_i are sums of two floats each (tile::Lse), and max is that of the first ones.
// Empty states (lse = -inf) weigh nothing and are not read. Without softmax o is the plain sum.
#pragma once

#include "attention/cuda/kernels/output.h"
#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/softmax.h"

namespace weft::attention::cuda {

// Threads that multiply, and write what comes of it: all of the CTA's, but for S::kLoaders of it that only load. They
// meet at a barrier of their own where there are such.
inline constexpr int kMultipliersBarrier = 8;
template <class S>
WEFT_INLINE void sync_threads() {
  if constexpr (S::kLoaders > 0)
    ptx::named_sync(kMultipliersBarrier, S::kThreads);
  else
    ptx::cta_sync();
}

// What the weights of states are relative to, their largest lse; a finite number where all are empty.
WEFT_INLINE float finite_base(float largest) { return largest == -infinity() ? 0.f : largest; }
WEFT_INLINE float exp_fast(float x) { return ptx::exp2_fast(x * tile::kLog2E); }
WEFT_INLINE float lse_of(float base, float sum) {
  return sum == 0.f ? -infinity() : base + ptx::log2_fast(sum) * tile::kLn2;
}

// A lane's source of a group: where its states lie, and which of them is the group's first row.
struct SourceOfLane {
  PartialStates states;
  int row_offset;
};
WEFT_INLINE SourceOfLane source_of_lane(const Call& call, const ItemRecord& item, const MergeGroup& group, int first) {
  const PlanHeader& plan = header();
  const int s = first + ptx::lane();
  if (s >= group.source_end) return {{nullptr, 0, 0, 0}, 0};
  if (plan.num_levels == 1) {
    PartialStates states = partial_of(call, item);
    states.data += (s - item.chunk) * partial_floats(states.states, call.head_dim_vo);
    return {states, 0};
  }
  const MergeSource& source = section<MergeSource>(call.plan, plan.merge_sources)[s];
  const Partial& partial = section<Partial>(call.plan, plan.partials)[source.partial];
  const Unit& unit = section<Unit>(call.plan, plan.units)[partial.unit];
  return {partial_at(call, partial.offset, unit.row_end - unit.row_begin, unit), source.row_offset};
}

// Merges states by one warp; a lane has a source, and sees to its weights. kShares: warps that have as many columns of
// a state each, so that more sources are on their way at a time.
template <class S, class F, int kShares = 1>
class Merge {
 public:
  WEFT_INLINE Merge(const Call& call, const typename F::P& p, const ItemRecord& item, const MergeGroup& group, float* o)
      : call_(call),
        p_(p),
        item_(item),
        group_(group),
        o_(o),
        heads_((group.kv_head_end - group.kv_head_begin) * call.group_size),
        first_(source_of_lane(call, item, group, group.source_begin)) {}

  WEFT_INLINE int num_states() const { return (group_.row_end - group_.row_begin) * heads_; }

  // Of the i-th of the group one share. `o_`: kDimVo floats of the warp's own.
  WEFT_INLINE void merge(int i, int share = 0) const {
    const State state = state_at(i);
    const PlanRow row = token_of(call_, item_, group_.row_begin + state.row - item_.row_begin);
    const tile::Lse first_lse = lse(first_, state);
    float base = 0, total = 0, sums[kPerLane] = {};
    if constexpr (F::kSoftmax) {
      float largest = first_lse.value;
      WEFT_NO_UNROLL
      for (int first = group_.source_begin + 32; first < group_.source_end; first += 32)
        largest = ptx::larger(largest, lse(source(first), state).value);
      base = finite_base(tile::lane_max(largest));
    }
    WEFT_NO_UNROLL
    for (int first = group_.source_begin; first < group_.source_end; first += 32) {
      const bool is_first = first == group_.source_begin;
      const SourceOfLane own = is_first ? first_ : source(first);
      float weight = own.states.data == nullptr ? 0.f : 1.f;
      if constexpr (F::kSoftmax) {
        const tile::Lse of_lane = is_first ? first_lse : lse(own, state);
        weight = exp_fast(of_lane.value - base + of_lane.rest);
      }
      const float* const from = own.states.data == nullptr
                                    ? nullptr
                                    : own.states.o(call_, own.row_offset + state.row, state.head) + share * kColumns;
      const int n = group_.source_end - first < 32 ? group_.source_end - first : 32;
      WEFT_NO_UNROLL
      for (int s = 0; s < n; s += kAtOnce) add(weight, from, s, n, total, sums);
    }
    write(state, row, base, total, sums, share);
  }

 private:
  static constexpr int kColumns = S::kDimVo / kShares, kPerLane = (kColumns + 31) / 32;
  // So many sources are on their way at a time: each is a trip to memory.
  static constexpr int kAtOnce = kPerLane > 8 ? 2 : kPerLane > 4 ? 4 : kShares == 1 ? 8 : 16;
  static_assert(S::kDimVo % kShares == 0 && (kShares == 1 || !F::OfVariant::output_transform));

  // A row of the group, and a query head.
  struct State {
    int row, head;
  };
  WEFT_INLINE State state_at(int i) const { return {i / heads_, group_.kv_head_begin * call_.group_size + i % heads_}; }

  WEFT_INLINE void write(const State& at, const PlanRow& row, float base, float total, const float (&sums)[kPerLane],
                         int share) const {
    const float factor = !F::kSoftmax ? 1.f : total == 0.f ? 0.f : 1.f / total;
    const float lse = F::kSoftmax ? lse_of(base, total) : 0.f;
    const StateOf of{row.q_row, row.request, row.idx, row.pos, at.head};
    using Output = typename S::Output;
    auto* const to = reinterpret_cast<Output*>(output_of(call_, of.q_row, of.head));
    WEFT_UNROLL
    for (int i = 0; i < kPerLane; ++i) {
      const int element = ptx::lane() + 32 * i;
      if (element >= kColumns) continue;
      if constexpr (F::OfVariant::output_transform)
        o_[element] = sums[i] * factor;
      else
        tile::store(to + share * kColumns + element, sums[i] * factor);
    }
    if constexpr (F::OfVariant::output_transform) {
      ptx::warp_sync();
      write_output<S, F>(call_, p_, of, o_, lse);
      ptx::warp_sync();
    } else {
      if (call_.lse != nullptr && share == 0 && ptx::lane() == 0) write_lse<F>(call_, p_, of, lse);
    }
  }

  WEFT_INLINE SourceOfLane source(int first) const { return source_of_lane(call_, item_, group_, first); }
  WEFT_INLINE tile::Lse lse(const SourceOfLane& own, const State& of) const {
    if (own.states.data == nullptr) return {-infinity(), 0.f};
    const float* const from = own.states.lse(call_, own.row_offset + of.row, of.head);
    return {from[0], from[own.states.states]};
  }
  // Adds sources [first, first + kAtOnce) of the n that lanes have, one by one: how many empty states lie between
  // depends on the row's neighbours, so any other order would make a row's bits depend on the batch. An empty state has
  // weight 0 and uninitialised memory.
  WEFT_INLINE static void add(float weight_of_lane, const float* of_lane, int first, int n, float& total,
                              float (&sums)[kPerLane]) {
    float weight[kAtOnce], o[kAtOnce][kPerLane];
    WEFT_UNROLL
    for (int s = 0; s < kAtOnce; ++s) {
      const int lane = first + s < n ? first + s : n - 1;
      const float* const from = ptx::shuffle(of_lane, lane) + (ptx::lane() < kColumns ? ptx::lane() : 0);
      weight[s] = ptx::shuffle(weight_of_lane, lane);
      if (first + s >= n) weight[s] = 0;
      WEFT_UNROLL
      for (int i = 0; i < kPerLane; ++i) {
        const bool is_there = kColumns % 32 == 0 || ptx::lane() + 32 * i < kColumns;
        o[s][i] = from[is_there ? 32 * i : 0];
      }
    }
    WEFT_UNROLL
    for (int s = 0; s < kAtOnce; ++s) {
      total += weight[s];
      WEFT_UNROLL
      for (int i = 0; i < kPerLane; ++i) sums[i] += weight[s] == 0.f ? 0.f : weight[s] * o[s][i];
    }
  }

  const Call& call_;
  const typename F::P& p_;
  const ItemRecord& item_;
  const MergeGroup group_;
  float* const o_;
  const int heads_;
  const SourceOfLane first_;
};

// Of the CTA, at the beginning of its shared memory: the plan's header, items, a vector of any kind for each warp, and
// a word for each thread.
template <class S>
struct Scratch {
  // Fewer elements where no hook changes vectors.
  static constexpr int kDim = [] {
    if constexpr (requires { S::kVectorDim; })
      return S::kVectorDim;
    else
      return S::kDimQk > S::kDimVo ? S::kDimQk : S::kDimVo;
  }();
  alignas(16) PlanHeader header;
  ItemRecord items[2];  // at work, and the worker's next one
  alignas(16) float vectors[S::kThreads / 32][kDim];
  int last[S::kThreads];
  WEFT_INLINE static Scratch& of_cta() { return *reinterpret_cast<Scratch*>(ptx::shared_memory()); }
};

// Whether partials are left to a kernel of their own (merge_apart.h).
template <class S>
WEFT_INLINE bool merges_apart() {
  if constexpr (requires { S::kMergesApart; })
    return header().num_levels == 1;
  else
    return false;
}
// One more of `expected` items of a group is done, by each of the partners: whether it was the last one. Releases what
// the CTA wrote before the barrier, acquires the partials of those who came before.
template <class S>
WEFT_INLINE bool is_last(unsigned* counter, int expected) {
  const bool last = static_cast<int>(ptx::atomic_add_acq_rel(counter, 1)) + 1 == expected * S::kPartners;
  if (last) *counter = 0;
  return last;
}

// Of one level: all that the item's unit has.
WEFT_INLINE MergeGroup group_of_unit(const ItemRecord& item) {
  return {item.row_begin,
          item.row_begin + item.num_rows,
          item.kv_head_begin,
          item.kv_head_end,
          0,
          item.num_chunks,
          item.num_chunks,
          item.merge_begin};
}

// An item that wrote a partial is done, and the threads have met since: counts at its unit's groups, and merges those
// where all have come.
template <class S, class F>
WEFT_INLINE void arrive(const Call& call, const typename F::P& p, const ItemRecord& item) {
  const PlanHeader& plan = header();
  Scratch<S>& scratch = Scratch<S>::of_cta();
  int* const last = scratch.last;
  unsigned* const counters = section<unsigned>(call.plan, plan.counters);
  const int num_groups = item.merge_rows * item.merge_heads;
  const auto group_of = [&](int k) -> MergeGroup {
    if (plan.num_levels == 1) return group_of_unit(item);
    const int row = k / item.merge_heads, head = k % item.merge_heads;
    return section<MergeGroup>(call.plan, plan.merge_groups)[item.merge_begin + row * plan.merge_stride + head];
  };
  WEFT_NO_UNROLL
  for (int first = 0; first < num_groups; first += S::kThreads) {
    const int n = num_groups - first < S::kThreads ? num_groups - first : S::kThreads;
    if (ptx::thread_index() < n) {
      const MergeGroup group = group_of(first + ptx::thread_index());
      last[ptx::thread_index()] = is_last<S>(counters + group.counter, group.expected);
    }
    sync_threads<S>();
    // Warps share the states of one group; of several each takes its own.
    constexpr int kWarps = S::kThreads / 32;
    const bool shares = n == 1;
    WEFT_NO_UNROLL
    for (int k = shares ? 0 : ptx::warp(); k < n; k += shares ? 1 : kWarps) {
      if (!last[k]) continue;
      const MergeGroup group = group_of(first + k);
      const Merge<S, F> of_group(call, p, item, group, scratch.vectors[ptx::warp()]);
      WEFT_NO_UNROLL
      for (int i = shares ? ptx::warp() : 0; i < of_group.num_states(); i += shares ? kWarps : 1) of_group.merge(i);
    }
    sync_threads<S>();
  }
}

}  // namespace weft::attention::cuda
