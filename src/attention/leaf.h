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

// The type in which q . k and p . v are multiplied: the spec's; by default bf16 where q and KV are both bf16 and the
// ISA's dot product is fast on this machine, else fp32. Throws Error(unsupported) when the ISA has no dot product.
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

// What run expects of a spec: made once a kernel, it packs the parameters of each call.
class Params {
 public:
  Params() = default;
  explicit Params(const AttentionSpec& spec);
  size_t num_slots() const { return num_slots_; }
  // Parameters of one call into slots[num_slots()], checked against the declarations: every name known, none missing,
  // dtype, rank and last stride right. Throws Error(invalid_argument | invalid_dtype | invalid_shape | invalid_stride);
  // allocates only then.
  // `plan`: what the plan has of the scalars that intervals name (PlanHeader::scalars); run leaves them out or says the
  // same, else Error(plan_mismatch). Null: there is no plan.
  void pack(float sm_scale, const std::vector<ScalarArg>& scalars, const std::vector<TensorArg>& tensors,
            const int* plan, abi::Slot* slots) const;

 private:
  Declarations declared_;
  std::vector<ScalarDecl> known_;     // those that only intervals name too: plan and run may be given the same list
  std::vector<std::string> planned_;  // that intervals name
  size_t num_slots_ = 1;              // sm_scale
};
std::vector<abi::Slot> pack_params(const AttentionSpec& spec, float sm_scale, const std::vector<ScalarArg>& scalars,
                                   const std::vector<TensorArg>& tensors);

}  // namespace weft
