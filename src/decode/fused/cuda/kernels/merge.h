// States of a row and a query head become attended columns, 16 of them by a warp: eight lanes take the pairs of
// neighbours of every fourth state, so a trip to memory brings 4 * kAtOnce states. A head's other columns are for
// other warps: what each needs besides is two numbers of a state.
//
//   merge_cell(args, edge, {states, phase}, {attended, phase + 1}, row, head, part);   // part: of head_dim / 16
//
// A row's bits follow from its list of states, which is the same whatever stands beside it.
#pragma once

#include "decode/fused/cuda/kernels/attention.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
// Of two columns, relative to the largest score.
struct MergedPair {
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

// Cell `part` of the head, [16], of cells [cell, row, 16]. False once the edge's limit has gone by. All lanes call.
template <int kAtOnce = 8, class Edge>
WEFT_INLINE bool merge_cell(const MergeArgs& args, const Edge& edge, PhaseCells<const typename Edge::Cell> states,
                            PhaseCells<typename Edge::Cell> attended, int row, int head, int part) {
  const int group = args.num_qo_heads / args.num_kv_heads, list = row * args.num_kv_heads + head / group;
  const int begin = args.state_indptr[list], end = args.state_indptr[list + 1];
  const int lane = ptx::lane(), cells_of_state = args.head_dim + 2, column = 16 * part + lane % 8 * 2;
  const float to_log2 = to_log2_of(args.scale, args.soft_cap);
  MergedPair merged;
  bool are_there = true;
  WEFT_NO_UNROLL
  for (int first = begin + lane / 8; first < end; first += 4 * kAtOnce) {
    int cells[2 * kAtOnce];
    WEFT_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      const bool is_one = first + 4 * i < end;
      const int at = is_one ? (args.states[first + 4 * i] + head % group) * cells_of_state : -1;
      cells[2 * i] = is_one ? at + column : -1;
      cells[2 * i + 1] = is_one ? at + args.head_dim : -1;
    }
    float x[2 * kAtOnce][2];
    are_there = edge.read(states.cells, cells, states.phase, x);
    if (!are_there) break;
    WEFT_UNROLL
    for (int i = 0; i < kAtOnce; ++i)
      if (cells[2 * i] >= 0) merged.add(x[2 * i + 1][0], x[2 * i + 1][1], x[2 * i], to_log2);
  }
  if (ptx::ballot(!are_there) != 0) return false;
  WEFT_UNROLL
  for (int mask = 8; mask <= 16; mask *= 2) {
    const float score = ptx::shuffle_xor(merged.largest, mask), sum = ptx::shuffle_xor(merged.total, mask);
    const float x[2] = {ptx::shuffle_xor(merged.x[0], mask), ptx::shuffle_xor(merged.x[1], mask)};
    merged.add(score, sum, x, to_log2);
  }
  if (lane >= 8) return true;
  const float factor = merged.total == 0.f ? 0.f : 1.f / merged.total;
  const float two[2] = {merged.x[0] * factor, merged.x[1] * factor};
  const int cell = head * (args.head_dim / 16) + part;
  Edge::write(attended.cells + (static_cast<i64>(cell) * args.rows + row) * 16 + lane * 2, two, attended.phase);
  return true;
}
#endif

}  // namespace weft::decode::fused
