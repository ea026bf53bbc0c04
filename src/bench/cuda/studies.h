// The studies of `weft bench decode --device cuda:0`: what kernels of whole models are made of, by itself.
#pragma once

#include "bench/bench.h"
#include "bench/cuda/card.h"

namespace weft::bench {

void measure_deep_linear(const BenchOptions& options, CardBench& bench, BenchReport& report);
void measure_depth_and_size(const BenchOptions& options, CardBench& bench, BenchReport& report);
void measure_edges(const BenchOptions& options, CardBench& bench, BenchReport& report);
void measure_attention_stack(const BenchOptions& options, CardBench& bench, BenchReport& report);
void measure_glu_stack(const BenchOptions& options, CardBench& bench, BenchReport& report);

}  // namespace weft::bench
