// A spec as the text of a kernel: what all share, which is the text of cuda/kernels/, and instances for the spec behind it.
#pragma once

#include <string>

#include "weft/attention.h"

namespace weft::attention::cuda {

struct KernelText {
  const char* file;            // that the head is the text of, from src/ on
  const char* head;            // complete
  std::string instances = {};  // of the spec; the kernel is weft_attend, or weft_merge_states
  int threads = 0, shared_bytes = 0;
};

// Fused rows and keys of a tile, and threads of a CTA, which fit the shared memory of every card.
struct PlainTile {
  int rows, keys, threads;
};
PlainTile plain_tile(const AttentionSpec& spec);

// Throws Error(unsupported) for a variant with more parameters than a launch takes.
KernelText attend_text(const AttentionSpec& spec);
// States in one type to states in another: fp32, fp16, bf16.
KernelText merge_states_text(DType in, DType out);

}  // namespace weft::attention::cuda

namespace weft::text {
extern const char* const k_cuda_attend;
extern const char* const k_cuda_merge_states;
}  // namespace weft::text
