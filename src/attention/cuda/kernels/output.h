// Finished states leave for the output tensors, and unfinished ones for the plan's partial states.
#pragma once

#include "attention/cuda/kernels/element.h"
#include "attention/cuda/kernels/hooks.h"
#include "tile/cuda/softmax.h"

namespace weft::attention::cuda {

// Which query token and head a state is of.
struct StateOf {
  int q_row, request, idx, pos, head;
};

WEFT_INLINE char* output_of(const Call& call, int q_row, int head) {
  return call.o.data + q_row * call.o.row_stride + head * call.o.head_stride;
}

// By one thread, of a call that wants it.
template <class F>
WEFT_INLINE void write_lse(const Call& call, const typename F::P& p, const StateOf& of, float lse) {
  if constexpr (F::OfVariant::lse_transform) {
    auto state = F::enter(p, of.request);
    lse = static_cast<float>(state.variant.lse_transform(p, Row{of.request, of.idx, of.pos, of.head, lse}));
  }
  call.lse[of.q_row * call.lse_row_stride + of.head * call.lse_head_stride] = lse;
}

// A warp writes the state (o, lse) of one row and head to the outputs; o: kDimVo floats that all of its lanes read.
template <class S, class F>
WEFT_INLINE void write_output(const Call& call, const typename F::P& p, const StateOf& of, const float* o, float lse) {
  using H = typename F::OfVariant;
  using Output = typename S::Output;
  auto* const to = reinterpret_cast<Output*>(output_of(call, of.q_row, of.head));
  if constexpr (H::output_transform) {
    const Row row{of.request, of.idx, of.pos, of.head, lse};
    auto state = F::enter(p, of.request);
    const Vec x = vector_of<S::kDimVo>(o);
    for (int i = ptx::lane(); i < S::kDimVo; i += 32)
      tile::store(to + i, static_cast<float>(state.variant.output_transform(p, x, i, row)));
  } else {
    for (int i = ptx::lane(); i < S::kDimVo; i += 32) tile::store(to + i, o[i]);
  }
  if (call.lse != nullptr && ptx::lane() == 0) write_lse<F>(call, p, of, lse);
}

// A partial of a unit, as Partial in attention/abi.h has it.
struct PartialStates {
  float* data;
  i64 states;
  int heads, first_head;
  WEFT_INLINE float* o(const Call& call, int row, int head) const {
    return data + (static_cast<i64>(row) * heads + head - first_head) * call.head_dim_vo;
  }
  // What rounding took from it lies `states` floats behind it.
  WEFT_INLINE float* lse(const Call& call, int row, int head) const {
    return data + states * call.head_dim_vo + static_cast<i64>(row) * heads + head - first_head;
  }
  WEFT_INLINE void put_lse(const Call& call, int row, int head, const tile::Lse& x) const {
    float* const to = lse(call, row, head);
    to[0] = x.value;
    to[states] = x.rest;
  }
};
// `offset`: as in Partial. Of a unit or an item of it.
template <class Of>
WEFT_INLINE PartialStates partial_at(const Call& call, i64 offset, int num_rows, const Of& of) {
  const int heads = (of.kv_head_end - of.kv_head_begin) * call.group_size;
  return {section<float>(call.plan, header().partial_data) + offset, static_cast<i64>(num_rows) * heads, heads,
          of.kv_head_begin * call.group_size};
}
// Of an item that writes one; else nothing.
WEFT_INLINE PartialStates partial_of(const Call& call, const ItemRecord& item) {
  if (item.partial < 0) return {nullptr, 0, 0, 0};
  return partial_at(call, item.partial, item.num_rows, item);
}

// A warp writes the state of a fused row of an item's unit: to the outputs, or to the item's partial. `token` counts
// query tokens of the unit.
template <class S, class F>
WEFT_INLINE void write_state(const Call& call, const typename F::P& p, const PartialStates& partial,
                             const FusedRow& row, int token, const float* o, const tile::Lse& lse) {
  if (partial.data == nullptr) {
    write_output<S, F>(call, p, {row.q_row, row.request, row.idx, row.pos, row.head}, o, lse.value);
    return;
  }
  float* const to = partial.o(call, token, row.head);
  for (int i = ptx::lane(); i < S::kDimVo; i += 32) to[i] = o[i];
  if (ptx::lane() == 0) partial.put_lse(call, token, row.head, lse);
}

}  // namespace weft::attention::cuda
