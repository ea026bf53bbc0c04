// RGMS on a card: a layer of RGCN over typed graphs, and sparse convolutions.
#pragma once

#include "bench/bench.h"
#include "bench/cuda/card.h"
#include "weft/sparse.h"

namespace weft::bench {

void measure_relations(CardBench& bench, const BenchOptions& options, BenchReport& report);
// Edges of the first typed graph of --data that is no convolution, else of the one that stands for such.
sparse::CooTensor edges_of_rgcn(const BenchOptions& options);

}  // namespace weft::bench
