// RGMS on a card: a layer of RGCN over typed graphs, and sparse convolutions.
#pragma once

#include "bench/bench.h"
#include "bench/cuda/card.h"

namespace weft::bench {

void measure_relations(CardBench& bench, const BenchOptions& options, BenchReport& report);

}  // namespace weft::bench
