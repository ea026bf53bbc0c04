// What a spec's variant and masks do, for the fp64 reference: formulas written apart from the variants' texts for what
// is built in, the text itself in double for everything else.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "attention/reference/reference.h"
#include "attention/reference/tensors.h"
#include "tile/abi/leaf.h"
#include "tile/abi/reference_leaf.h"
#include "weft/attention.h"

namespace weft {
class Module;
}

namespace weft::reference {

using Score = abi::ReferenceScore;
using VectorHook = std::function<void(const abi::VectorRow& row, const double* x, double* y, int dim)>;

// An empty function: no such hook.
struct Hooks {
  bool use_softmax = true;
  std::function<double(const Score&, double s)> logits;
  std::vector<std::function<bool(const Score&)>> visible;  // all must agree
  VectorHook query, key, value, output;
  std::function<double(const abi::VectorRow& row)> lse;  // of a finished row
  std::shared_ptr<const Module> code;                    // of the compiled text; null where there is none
};

// Of what the scope leaves of a call. Throws like pack_params and jit::build.
Hooks hooks(const AttentionSpec& spec, const PlanInput& plan, const AttentionTensors& tensors,
            const ReferenceScope& scope = {});

// Of the variant's text alone, compiled as `text` (text.h) with the parameters of this call.
Hooks compiled_hooks(const AttentionSpec& spec, const PlanInput& plan, const AttentionTensors& tensors,
                     const std::string& text);

// In closed_forms.cpp: the masks of the spec, and a variant that is built in; false if it is not.
void add_masks(Hooks& hooks, const AttentionSpec& spec, const PlanInput& plan, const AttentionTensors& tensors);
bool add_closed_form(Hooks& hooks, const Variant& variant, const PlanInput& plan, const AttentionTensors& tensors);

// The vector after a hook; without one, as it is.
Vector transformed(const VectorHook& hook, const abi::VectorRow& row, Vector x);

}  // namespace weft::reference
