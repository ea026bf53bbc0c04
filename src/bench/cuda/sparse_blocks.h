// Rows of `weft bench sparse --device cuda:0` over blocks: sparse attention's band and butterfly, and pruned weights.
#pragma once

#include "bench/bench.h"
#include "bench/cuda/card.h"

namespace weft::bench {

// In bf16. The ceiling of a rate is that of products by tensor cores, in turns with it.
void measure_blocks_on_card(CardBench& bench, const BenchOptions& options, BenchReport& report);

}  // namespace weft::bench
