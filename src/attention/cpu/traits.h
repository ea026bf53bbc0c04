// What the CPU's kernels are like for a spec, per instruction set.
#pragma once

#include "attention/traits.h"
#include "weft/attention.h"
#include "weft/device.h"

namespace weft {

// The type in which q . k and p . v are multiplied: the spec's; by default bf16 where q and KV are both bf16 and this
// machine's dot product is fast, or it has tiles of registers that the spec can use, else fp32. Throws
// Error(unsupported) when the ISA has no dot product.
DType compute_type(const AttentionSpec& spec, Isa isa);

// Tile classes, granule, costs and thresholds of the CPU core, and the shared team's number of workers.
KernelTraits cpu_traits(const AttentionSpec& spec, Isa isa);

}  // namespace weft
