// A batch of prefill and decode on a card: one plan and launch, beside a launch of each in a row.
#pragma once

#include "bench/bench.h"
#include "bench/cuda/card.h"

namespace weft::bench {

void measure_mixed(CardBench& bench, const BenchOptions& options, BenchReport& report);

}  // namespace weft::bench
