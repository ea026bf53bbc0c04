// What kernels on cards are like for a spec.
#pragma once

#include "attention/cuda/architecture.h"
#include "attention/rounding.h"
#include "attention/traits.h"

namespace weft::attention::cuda {

// fp32, or what the architecture multiplies the spec's queries and keys in, which it does where the spec
// names no type. Throws Error(unsupported) for another one.
DType compute_type(const AttentionSpec& spec, const Architecture& architecture);
// Tile classes, granule, costs and thresholds; workers for a card of so many multiprocessors.
KernelTraits traits(const AttentionSpec& spec, const Architecture& architecture, int num_multiprocessors);
Rounding rounding(const AttentionSpec& spec, DType compute);

}  // namespace weft::attention::cuda
