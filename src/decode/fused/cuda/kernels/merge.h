// States of a row and a query head become attended columns, 16 of them by a warp: eight lanes take the pairs of
// neighbours of every fourth state, so a trip to memory brings 4 * kAtOnce states. A head's other columns are for
// other warps: what each needs besides is two numbers of a state.
//
//   const auto write = [&](int row, int column, const float (&two)[2]) { ... };            // of attended rows
//   merge_cell(args, edge, {states, phase}, row, head, part, write);                       // part: of head_dim / 16
//
// Long lists have several warps for a cell, each a share of the states:
//
//   const StateList list = states_of(args, row, head);
//   if (!merge_share(args, edge, {states, phase}, list, head, part, {share, shares}, merged)) return give_up();
//   if (lane < 8) of_warps[share * 8 + lane] = merged;  sync();
//   write_cell(args, row, head, part, of_warps, shares, write);                           // one of them
//
// A row's bits follow from its list of states, which is the same whatever stands beside it, and from the number of
// shares.
#pragma once

#include "decode/fused/cuda/kernels/attention.h"
#include "decode/fused/cuda/kernels/model_args.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
// Of two columns, relative to the largest score.
struct alignas(16) MergedPair {
  float largest = ptx::from_bits(0xff800000u), total = 0, x[2] = {};

  // What is NaN stays so: it has no largest score, and weighs NaN.
  WEFT_INLINE void add(float score, float sum, const float (&from)[2], float to_log2) {
    const float now = ptx::larger(largest, score);
    const float own = tile::shrink_of(largest, now, to_log2), other = tile::shrink_of(score, now, to_log2);
    largest = now;
    total = own * total + other * sum;
    WEFT_UNROLL
    for (int j = 0; j < 2; ++j) x[j] = own * x[j] + other * from[j];
  }
};

// One of the warps that merge a cell.
struct MergeShare {
  int index, count;
};

// States of a row and query head's KV head, in the order of their keys; `near`: those that a share of them begins with,
// if they are there, kNear at most.
struct StateList {
  const int* states;
  int count;
  const int* near = nullptr;
};
WEFT_INLINE StateList states_of(const MergeArgs& args, int row, int head) {
  const int list = row * args.num_kv_heads + head / (args.num_qo_heads / args.num_kv_heads);
  return {args.states + args.state_indptr[list], args.state_indptr[list + 1] - args.state_indptr[list]};
}

// Of cell `part` of the head: lane i of the first eight has columns 2i and 2i + 1 of the share's states. False once the
// edge's limit has gone by. All lanes call.
template <int kAtOnce = kNear / 4, class Edge>
WEFT_INLINE bool merge_share(const MergeArgs& args, const Edge& edge, PhaseCells<const typename Edge::Cell> states,
                             StateList list, int head, int part, MergeShare share, MergedPair& merged) {
  static_assert(4 * kAtOnce <= kNear);
  const int group = args.num_qo_heads / args.num_kv_heads;
  const int lane = ptx::lane(), cells_of_state = args.head_dim + 2, column = 16 * part + lane % 8 * 2;
  const float to_log2 = to_log2_of(args.scale, args.soft_cap);
  merged = MergedPair{};
  bool are_there = true;
  const int* at_states = list.near != nullptr ? list.near : list.states + 4 * kAtOnce * share.index;
  WEFT_NO_UNROLL
  for (int first = 4 * kAtOnce * share.index; first < list.count; first += 4 * kAtOnce * share.count) {
    int of_state[kAtOnce];  // its first cell; -1: there are fewer
    WEFT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const int own = lane / 8 + 4 * i;
      of_state[i] = first + own < list.count ? (at_states[own] + head % group) * cells_of_state : -1;
    }
    at_states = list.states + first + 4 * kAtOnce * share.count;
    // Its columns, and its two numbers.
    const auto at = [&](int i) {
      const int cell = ptx::opaque(of_state[i / 2]);
      return cell < 0 ? -1 : cell + (i % 2 == 0 ? column : args.head_dim);
    };
    float x[2 * kAtOnce][2];
    are_there = edge.template read_where<2 * kAtOnce>(
        states.cells, at, [&](int) { return states.phase; }, x);
    if (ptx::ballot(!are_there) != 0) return false;
    WEFT_UNROLL
    for (int i = 0; i < kAtOnce; ++i)
      if (of_state[i] >= 0) merged.add(x[2 * i + 1][0], x[2 * i + 1][1], x[2 * i], to_log2);
  }
  WEFT_UNROLL
  for (int mask = 8; mask <= 16; mask *= 2) {
    const float score = ptx::shuffle_xor(merged.largest, mask), sum = ptx::shuffle_xor(merged.total, mask);
    const float x[2] = {ptx::shuffle_xor(merged.x[0], mask), ptx::shuffle_xor(merged.x[1], mask)};
    merged.add(score, sum, x, to_log2);
  }
  return true;
}

// By the first eight lanes, a pair of neighbouring columns each.
template <class Write>
WEFT_INLINE void write_pair(const MergeArgs& args, int row, int head, int part, const MergedPair& merged,
                            const Write& write) {
  const int lane = ptx::lane();
  if (lane >= 8) return;
  const float factor = merged.total == 0.f ? 0.f : 1.f / merged.total;
  const float two[2] = {merged.x[0] * factor, merged.x[1] * factor};
  write(row, head * args.head_dim + 16 * part + 2 * lane, two);
}

// Of all shares, [shares, 8], in their order.
template <class Write>
WEFT_INLINE void write_cell(const MergeArgs& args, int row, int head, int part, const MergedPair* of_lanes, int shares,
                            const Write& write) {
  MergedPair merged = of_lanes[ptx::lane() % 8];
  for (int share = 1; share < shares; ++share) {
    const MergedPair next = of_lanes[8 * share + ptx::lane() % 8];
    merged.add(next.largest, next.total, next.x, to_log2_of(args.scale, args.soft_cap));
  }
  write_pair(args, row, head, part, merged, write);
}

// The whole cell by one warp.
template <int kAtOnce = kNear / 4, class Edge, class Write>
WEFT_INLINE bool merge_cell(const MergeArgs& args, const Edge& edge, PhaseCells<const typename Edge::Cell> states,
                            int row, int head, int part, const Write& write) {
  MergedPair merged;
  if (!merge_share<kAtOnce>(args, edge, states, states_of(args, row, head), head, part, {0, 1}, merged)) return false;
  write_pair(args, row, head, part, merged, write);
  return true;
}
#endif

}  // namespace weft::decode::fused
