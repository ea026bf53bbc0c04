// What the CPU's kernels round.
#pragma once

#include "attention/rounding.h"
#include "weft/attention.h"

namespace weft {

// Of kernels that multiply in this type.
attention::Rounding cpu_rounding(const AttentionSpec& spec, DType compute);

}  // namespace weft
