// What kernels on cards are like for a spec.
#pragma once

#include "attention/rounding.h"
#include "attention/traits.h"

namespace weft::attention::cuda {

// Tile classes, granule, costs and thresholds; workers for a card of so many multiprocessors.
KernelTraits traits(const AttentionSpec& spec, int num_multiprocessors);
// Throws Error(unsupported) for a type that `architecture` does not multiply.
DType compute_type(const AttentionSpec& spec, const std::string& architecture);
Rounding rounding(const AttentionSpec& spec, DType compute);

}  // namespace weft::attention::cuda
