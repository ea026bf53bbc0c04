// Quest on a card: steps of decode over chosen pages, choice included, beside plain decode of as many pages.
#pragma once

#include "bench/bench.h"
#include "bench/cuda/card.h"

namespace weft::bench {

void measure_quest(CardBench& bench, const BenchOptions& options, BenchReport& report);

}  // namespace weft::bench
