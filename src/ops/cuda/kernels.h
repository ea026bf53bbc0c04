// The operators' kernels: texts of ops/cuda/kernels with what instantiates them, compiled for a card when one is first
// asked for, and kept.
//
//   launch(card, norm_kernel(), {.ctas = 8}, stream, NormArgs{...});
#pragma once

#include <string>
#include <vector>

#include "device/cuda/launch.h"
#include "ops/cuda/kernels/args.h"
#include "weft/device.h"
#include "weft/model.h"
#include "weft/tensor.h"

namespace weft::ops {

struct KernelText {
  std::string symbol;
  const char* base;      // complete but for the instance
  std::string instance;  // appended
  int most_shared_bytes = 0;
  std::string text() const { return base + instance; }
};

KernelText norm_kernel();
KernelText gate_kernel();  // this and the next two: ctas_of_pieces
KernelText cap_kernel();
KernelText add_row_kernel();
KernelText rotate_kernel();
KernelText rotate_at_kernel();
// Of a cache of fp32, fp16, bf16 or int8. Throws Error(unsupported) for another.
KernelText append_kernel(DType cache, KvScales scales);
// `query`: fp32 or bf16.
KernelText qkv_kernel(DType cache, KvScales scales, DType query);
KernelText linear_kernel(WeightType weights, int rows, int outputs, bool gated);
KernelText embed_kernel(WeightType weights);

inline constexpr int kThreads = 256;  // of a CTA of all of them
// Of [rows, dim], element by element.
inline int64_t ctas_of_pieces(int64_t rows, int64_t dim) {
  constexpr int64_t kWarps = kThreads / 32;
  return (rows * ((dim + kPieceColumns - 1) / kPieceColumns) + kWarps - 1) / kWarps;
}

// Compiles and loads them now, several at a time. Throws what jit::cuda_module throws.
void prepare(cuda::Card& card, std::vector<KernelText> kernels, WorkerTeam& team);

struct CardLaunch {
  int64_t ctas = 1;
  int shared_bytes = 0;
};
// It may begin while the kernel before it ends. CTAs beyond what the card holds at once have their work done by the
// others.
void launch_with(cuda::Card& card, const KernelText& kernel, const CardLaunch& launch, Stream stream, const void* args);
template <class Args>
void launch(cuda::Card& card, const KernelText& kernel, const CardLaunch& how, Stream stream, const Args& args) {
  static_assert(std::is_trivially_copyable_v<Args>);
  launch_with(card, kernel, how, stream, &args);
}

}  // namespace weft::ops
