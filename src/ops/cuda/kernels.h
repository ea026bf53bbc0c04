// The operators' kernels: texts of ops/cuda/kernels with what instantiates them.
#pragma once

#include "jit/cuda/kernel_text.h"
#include "ops/cuda/kernels/args.h"
#include "ops/cuda/kernels/quest_args.h"
#include "weft/model.h"
#include "weft/tensor.h"

namespace weft::ops {

using cuda::KernelText;

KernelText norm_kernel();
KernelText gate_kernel();  // this and the next two: ctas_of_pieces
KernelText cap_kernel();
KernelText add_row_kernel();
KernelText rotate_kernel();
KernelText rotate_at_kernel();
// Into a cache of fp32, fp16, bf16 or int8. Throws Error(unsupported) for another.
KernelText append_kernel(DType cache, KvScales scales);
// `query`: fp32 or bf16.
KernelText qkv_kernel(DType cache, KvScales scales, DType query);
// Of keys, queries and summaries in fp32, fp16 (not summaries) or bf16; `rows`: queries at a time, 1, 2 or 4.
KernelText summarise_kernel(DType keys, DType summaries);
KernelText choose_pages_kernel(DType queries, DType summaries, int rows);
// Chooses by products in bf16, from sm_90 on: dims a multiple of 16 up to kMostProductDim.
KernelText choose_by_products_kernel(int dim);
KernelText set_pages_kernel();
KernelText linear_kernel(WeightType weights, int rows, int outputs, bool gated);
KernelText embed_kernel(WeightType weights);
KernelText greedy_kernel();
KernelText draw_kernel();
KernelText draw_probabilities_kernel();
// For weights in tiles (kernels/tiled_linear.h).
struct TiledLinearForm {
  WeightType weights = WeightType::bf16;
  int rows = 1;   // of x
  int parts = 2;  // of each number of x
  int bands = 1;
  bool gated = false;
  int warps = 8;
  int ahead = 1;         // pieces that each has on their way
  int shared_bytes = 0;  // at most
};
KernelText tiled_linear_kernel(const TiledLinearForm& form);
KernelText tiled_embed_kernel(WeightType weights);
// For many rows (kernels/tiled_many.h), x in so many parts.
KernelText tiled_many_kernel(WeightType weights, int parts);
KernelText split_kernel(int parts);
KernelText sum_splits_kernel();

inline constexpr int kThreads = 256;  // of a CTA of all of them
// Of [rows, dim], element by element.
inline int64_t ctas_of_pieces(int64_t rows, int64_t dim) {
  constexpr int64_t kWarps = kThreads / 32;
  return (rows * ((dim + kPieceColumns - 1) / kPieceColumns) + kWarps - 1) / kWarps;
}

}  // namespace weft::ops
