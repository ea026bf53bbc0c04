// Finished states leave for the output tensors, and unfinished ones for the plan's partial states.
#pragma once

#include "attention/cuda/kernels/element.h"
#include "attention/cuda/kernels/hooks.h"

namespace weft::attention::cuda {

// Which query token and head a state is of.
struct StateOf {
  int q_row, request, idx, pos, head;
};

// A warp writes the state (o, lse) of one row and head to the outputs; o: kDimVo floats that all of its lanes read.
template <class S, class F>
WEFT_INLINE void write_output(const Call& call, const typename F::P& p, const StateOf& of, const float* o, float lse) {
  using H = typename F::OfVariant;
  using Output = typename S::Output;
  auto* const to = reinterpret_cast<Output*>(call.o.data + of.q_row * call.o.row_stride + of.head * call.o.head_stride);
  const Row row{of.request, of.idx, of.pos, of.head, lse};
  if constexpr (H::output_transform) {
    auto state = F::enter(p, of.request);
    const Vec x = vector_of<S::kDimVo>(o);
    for (int i = ptx::lane(); i < S::kDimVo; i += 32)
      tile::store(to + i, static_cast<float>(state.variant.output_transform(p, x, i, row)));
  } else {
    for (int i = ptx::lane(); i < S::kDimVo; i += 32) tile::store(to + i, o[i]);
  }
  if (call.lse == nullptr || ptx::lane() != 0) return;
  if constexpr (H::lse_transform) {
    auto state = F::enter(p, of.request);
    lse = static_cast<float>(state.variant.lse_transform(p, row));
  }
  call.lse[of.q_row * call.lse_row_stride + of.head * call.lse_head_stride] = lse;
}

// Where the state of a row and head of a unit lies in a partial: o, and lse behind those of all.
struct PartialState {
  float *o, *lse;
};
WEFT_INLINE PartialState partial_state(const Call& call, int partial, int row, int head) {
  const PlanHeader& plan = *call.plan;
  const Partial& at = section<Partial>(&plan, plan.partials)[partial];
  const Unit& unit = section<Unit>(&plan, plan.units)[at.unit];
  const i64 heads = static_cast<i64>(unit.kv_head_end - unit.kv_head_begin) * call.group_size;
  const i64 states = (unit.row_end - unit.row_begin) * heads;
  const i64 state = row * heads + head - unit.kv_head_begin * call.group_size;
  float* const data = section<float>(&plan, plan.partial_data) + at.offset;
  return {data + state * call.head_dim_vo, data + states * call.head_dim_vo + state};
}

// A warp writes the state of a fused row of an item's unit: to the outputs, or to the item's partial. `token` counts query
// tokens of the unit.
template <class S, class F>
WEFT_INLINE void write_state(const Call& call, const typename F::P& p, const WorkItem& item, const FusedRow& row,
                             int token, const float* o, float lse) {
  if (item.partial < 0) {
    write_output<S, F>(call, p, {row.q_row, row.request, row.idx, row.pos, row.head}, o, lse);
    return;
  }
  const PartialState to = partial_state(call, item.partial, token, row.head);
  for (int i = ptx::lane(); i < S::kDimVo; i += 32) to.o[i] = o[i];
  if (ptx::lane() == 0) *to.lse = lse;
}

}  // namespace weft::attention::cuda
