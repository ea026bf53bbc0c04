// What a spec's variant and masks do, for the fp64 reference: formulas written apart from the variants' texts for what
// is built in, the text itself in double for everything else.
#pragma once

#include <functional>
#include <memory>

#include "device/cpu/module.h"
#include "tile/abi/leaf.h"
#include "tile/abi/reference_leaf.h"
#include "weft/attention.h"

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
  std::shared_ptr<const Module> module;                  // holds the code of compiled hooks
};

// Throws like pack_params and jit::build.
Hooks hooks(const AttentionSpec& spec, const PlanInput& plan, const AttentionTensors& tensors);

// Adds the closed forms of the spec's masks, and of its variant if it is built in; false if it is not.
bool add_closed_forms(Hooks& hooks, const AttentionSpec& spec, const PlanInput& plan, const AttentionTensors& tensors);

}  // namespace weft::reference
