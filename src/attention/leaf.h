// From a spec to its leaf: validation, the parts of mask and variant together, kernel text, compiled code, parameters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/cpu/module.h"
#include "tile/abi/leaf.h"
#include "weft/attention.h"

namespace weft {

// Throws Error(unsupported | invalid_argument) naming the field, its value and what is allowed.
void validate(const AttentionSpec& spec);

// The type in which q . k and p . v are multiplied: bf16 where q and KV are both bf16 and the ISA has the dot
// product, else fp32.
DType compute_type(const AttentionSpec& spec, Isa isa);

// Intervals of mask, sliding window and variant together. Throws Error(unsupported) when both have two.
std::vector<Interval> combined_intervals(const AttentionSpec& spec);

// Every scalar and tensor that run expects, in the order of their slots: the variant's, then the mask's.
struct Declarations {
  std::vector<ScalarDecl> scalars;
  std::vector<TensorDecl> tensors;
};
Declarations declarations(const AttentionSpec& spec);

// The complete text of the leaf. real = float in kernels.
std::string leaf_text(const AttentionSpec& spec, Isa isa);

struct LeafHandle {
  const abi::Leaf* leaf = nullptr;
  std::shared_ptr<const Module> module;  // null for built-in leaves
  std::string origin;                    // "built-in", "memory", "disk", "compiler"
};
// Built in, or compiled by jit::build. Throws Error(no_compiler | compile_failed).
LeafHandle find_leaf(const AttentionSpec& spec, Isa isa);

// Parameters of one call, checked against the declarations: every name known, none missing, dtype, rank and
// last stride right. Throws Error(invalid_argument | invalid_dtype | invalid_shape | invalid_stride).
std::vector<abi::Slot> pack_params(const AttentionSpec& spec, float sm_scale, const std::vector<ScalarArg>& scalars,
                                   const std::vector<TensorArg>& tensors);

}  // namespace weft
