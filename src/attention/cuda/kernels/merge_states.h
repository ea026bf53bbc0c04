// Public merging of states: a warp merges those of a row and head, some elements at a time.
#pragma once

#include "attention/cuda/kernels/merge_args.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/ptx/thread.h"
#include "tile/cuda/softmax.h"

namespace weft::attention::cuda {

template <class In, class Out>
WEFT_INLINE void merge_states(const MergeArgs& args) {
  const MergeStatesArgs& x = args.states;
  const float none = ptx::from_bits(0xff800000u);
  const i64 warps = static_cast<i64>(ptx::num_ctas()) * (ptx::num_threads() / 32);
  for (i64 i = ptx::cta_index() * (ptx::num_threads() / 32) + ptx::warp(); i < args.rows * x.num_heads; i += warps) {
    const i64 row = i / x.num_heads, head = i % x.num_heads;
    const i64 first = x.indptr != nullptr ? x.indptr[row] : 0,
              last = x.indptr != nullptr ? x.indptr[row + 1] : x.num_states;
    const float* const lse = x.lse + row * x.lse_row_stride + head * x.lse_head_stride;
    const char* const o = x.o + row * x.o_row_stride + head * x.o_head_stride;
    float largest = none;
    for (i64 s = first; s < last; ++s) largest = ptx::larger(largest, lse[s * x.lse_state_stride]);
    const float base = largest == none ? 0.f : largest;
    float total = 0;
    for (int d = 0; d < x.dim; d += 32) {
      const int at = d + ptx::lane();
      float sum = 0;
      total = 0;
      for (i64 s = first; s < last; ++s) {
        const float of_state = lse[s * x.lse_state_stride];
        if (of_state == none) continue;
        const float weight = ptx::exp2_fast((of_state - base) * tile::kLog2E);
        total += weight;
        if (at < x.dim) sum += weight * tile::to_float(reinterpret_cast<const In*>(o + s * x.o_state_stride)[at]);
      }
      auto* const to = reinterpret_cast<Out*>(x.o_out.data + row * x.o_out.row_stride + head * x.o_out.head_stride);
      if (at < x.dim) tile::store(to + at, total == 0.f ? 0.f : sum / total);
    }
    if (ptx::lane() == 0)
      x.lse_out[row * x.lse_out_row_stride + head * x.lse_out_head_stride] =
          total == 0.f ? none : base + ptx::log2_fast(total) * tile::kLn2;
  }
}

}  // namespace weft::attention::cuda
