// A spec as the text of a kernel: what all share, which is the text of cuda/kernels/, and instances for the spec behind
// it.
#pragma once

#include <string>

#include "attention/cuda/family.h"
#include "jit/cuda/kernel_text.h"
#include "weft/attention.h"

namespace weft::attention::cuda {

using weft::cuda::KernelText;

// For people: "attention LogitsSoftCap bf16 hd128 small_tiles sm_90a".
std::string kernel_name(const AttentionSpec& spec, const Architecture& architecture, const Form& form);
// Throws Error(unsupported) for a variant with more parameters than a launch takes.
KernelText attend_text(const AttentionSpec& spec, const Architecture& architecture, const Form& form);
// What merges the partials of a form that leaves them (Form::merges_apart); its argument is the form's.
KernelText merge_apart_text(const AttentionSpec& spec, const Architecture& architecture, const Form& form);
// States in one type to states in another: fp32, fp16, bf16.
KernelText merge_states_text(DType in, DType out, const Architecture& architecture);
// PlanMode::even; its argument is EvenArgs.
KernelText plan_even_text(const Architecture& architecture);
KernelText locate_rows_text(const Architecture& architecture);

}  // namespace weft::attention::cuda

namespace weft::text {
extern const char* const k_cuda_attend;
extern const char* const k_cuda_merge_states;
extern const char* const k_cuda_plan_even;
extern const char* const k_cuda_locate_rows;
}  // namespace weft::text
