// Rows of `weft bench jit --device cuda:0` over sparse programs: from a program's text to kernels that a card can
// launch.
#pragma once

#include "bench/bench.h"

namespace weft::bench {

// Cold, and what the compiler's own passes, up to CUDA's text, take of that. The caller sees to an empty cache.
void measure_sparse_jit(const BenchOptions& options, BenchReport& report);

}  // namespace weft::bench
