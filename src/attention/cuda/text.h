// A spec as the text of a kernel: what all share, which is the text of cuda/kernels/, and instances for the spec behind
// it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jit/cuda/kernel_text.h"
#include "weft/attention.h"

namespace weft::attention::cuda {

using weft::cuda::KernelText;

// How a kernel computes: in fp32 on CUDA cores, whatever the tensors are; or by products of warps, with tiles of every
// class or with the smallest alone, which more CTAs of a multiprocessor may have.
enum class Path { plain, small_tiles, all_tiles };
std::string_view to_string(Path path);

// Fused rows and keys of a tile of the plain path.
struct PlainTile {
  int rows, keys, threads;
};
PlainTile plain_tile(const AttentionSpec& spec);

// Tiles of products: 16 rows, and up to most_rows 64 and 128, where their shared memory and registers are there.
struct MmaTiles {
  int keys_of_small, keys, threads, stages_of_small, stages, most_rows;
};
// What a card of this architecture ("sm_90a") multiplies the spec in: bf16 or fp16; nothing where the plain path is
// all.
std::optional<DType> mma_type(const AttentionSpec& spec, const std::string& architecture);
// Of a spec that has such a type.
MmaTiles mma_tiles(const AttentionSpec& spec, const std::string& architecture);

// Of a CTA.
int shared_bytes(const AttentionSpec& spec, const std::string& architecture, Path path);
// CTAs that a multiprocessor holds at once: two, which tiles are made for, or one where shared memory has no room for
// another. Registers have: of 128 threads, 255 each are half.
int resident_ctas(const AttentionSpec& spec, const std::string& architecture, Path path);

// For people: "attention LogitsSoftCap bf16 hd128 small_tiles sm_90a".
std::string kernel_name(const AttentionSpec& spec, const std::string& architecture, Path path);
// Throws Error(unsupported) for a variant with more parameters than a launch takes.
KernelText attend_text(const AttentionSpec& spec, const std::string& architecture, Path path);
// States in one type to states in another: fp32, fp16, bf16.
KernelText merge_states_text(DType in, DType out, const std::string& architecture);
// PlanMode::even; its argument is EvenArgs.
KernelText plan_even_text(const std::string& architecture);
KernelText locate_rows_text(const std::string& architecture);

}  // namespace weft::attention::cuda

namespace weft::text {
extern const char* const k_cuda_attend;
extern const char* const k_cuda_merge_states;
extern const char* const k_cuda_plan_even;
extern const char* const k_cuda_locate_rows;
}  // namespace weft::text
