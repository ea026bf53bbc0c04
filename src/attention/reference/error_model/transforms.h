// What a variant's own arithmetic rounds, in the type of kernels: by formula for what is built in, of any other text by
// running it in float beside the reference's double.
#pragma once

#include <functional>

#include "attention/reference/hooks.h"
#include "attention/rounding.h"
#include "weft/attention.h"

namespace weft::reference {

// An empty function: it rounds nothing.
struct Transforms {
  std::function<double(const Score&, double s)> logits_error;  // how far what `logits` gives is off, at most
  VectorHook query, key, value, output;                        // as kernels compute them
};

// `exact`: the hooks of the call.
Transforms transforms(const AttentionSpec& spec, const PlanInput& plan, const AttentionTensors& tensors,
                      const Hooks& exact, const attention::Rounding& rounding);

}  // namespace weft::reference
