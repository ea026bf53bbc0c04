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

// A hook of vectors as it is meant, and as the kernels' float computes it; without the latter it is computed exactly.
struct VectorHooks {
  VectorHook exact, rounded;
  explicit operator bool() const { return static_cast<bool>(exact); }
};

// An empty function: no such hook.
struct Hooks {
  bool use_softmax = true;
  std::function<double(const Score&, double s)> logits;
  std::function<double(const Score&, double s)> logits_rounding;  // how far float moves what `logits` gives, at most
  std::vector<std::function<bool(const Score&)>> visible;         // all must agree
  VectorHooks query, key, value, output;
  std::function<double(const abi::VectorRow& row)> lse;  // of a finished row
  std::vector<std::shared_ptr<const Module>> modules;    // hold the code of compiled hooks
};

// Throws like pack_params and jit::build.
Hooks hooks(const AttentionSpec& spec, const PlanInput& plan, const AttentionTensors& tensors);

// Adds the closed forms of the spec's masks, and of its variant if it is built in; false if it is not.
bool add_closed_forms(Hooks& hooks, const AttentionSpec& spec, const PlanInput& plan, const AttentionTensors& tensors);

}  // namespace weft::reference
