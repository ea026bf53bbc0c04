// Queries, keys and values as their hooks make them: a warp has a vector at a time, whose floats lie where all of its
// lanes read.
#pragma once

#include "attention/cuda/kernels/element.h"
#include "attention/cuda/kernels/hooks.h"

namespace weft::attention::cuda {

WEFT_INLINE const char* query_of(const Call& call, const FusedRow& row) {
  return call.q.data + row.q_row * call.q.row_stride + row.head * call.q.head_stride;
}

// The query of a row, element by element to store(i, x); `raw`: S::kDimQk floats of the warp's own.
template <class S, class F, class Store>
WEFT_INLINE void load_query(const Call& call, const typename F::P& p, const FusedRow& row, float* raw,
                            const Store& store) {
  const char* const from = query_of(call, row);
  if constexpr (F::OfVariant::query_transform) {
    for (int i = ptx::lane(); i < S::kDimQk; i += 32) raw[i] = element<typename S::Query>(from, i);
    ptx::warp_sync();
    auto state = F::enter(p, row.request);
    const Vec x = vector_of<S::kDimQk>(raw);
    const Row of{row.request, row.idx, row.pos, row.head, 0.f};
    for (int i = ptx::lane(); i < S::kDimQk; i += 32)
      store(i, static_cast<float>(state.variant.query_transform(p, x, i, of)));
    ptx::warp_sync();
  } else {
    for (int i = ptx::lane(); i < S::kDimQk; i += 32) store(i, element<typename S::Query>(from, i));
  }
}

// A key or value of kDim floats that the warp wrote to `raw`, of token t of the item's list, in the same way.
template <class F, bool kIsKey, int kDim, class Store>
WEFT_INLINE void transform_token(const typename F::P& p, const ItemRecord& item, int kv_head, int t, int pos,
                                 const float* raw, const Store& store) {
  ptx::warp_sync();
  auto state = F::enter(p, item.request);
  const Vec x = vector_of<kDim>(raw);
  const Row of{item.request, item.first_pos + t, pos, kv_head, 0.f};
  for (int i = ptx::lane(); i < kDim; i += 32) {
    if constexpr (kIsKey)
      store(i, static_cast<float>(state.variant.key_transform(p, x, i, of)));
    else
      store(i, static_cast<float>(state.variant.value_transform(p, x, i, of)));
  }
  ptx::warp_sync();
}

}  // namespace weft::attention::cuda
