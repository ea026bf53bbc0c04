// Decode of a model in both forms of its steps, layered and fused, in turns.
#pragma once

#include <functional>
#include <string>

#include "bench/bench.h"
#include "bench/cuda/card.h"
#include "weft/model.h"

namespace weft::bench {

// `make` makes the model's forward pass for a form. Where the card has no room for both at once they follow each other,
// and a note says so.
void measure_step_forms(const std::string& name, const std::function<ForwardPass(StepForm)>& make, bool quick,
                        CardBench& bench, BenchReport& report);

}  // namespace weft::bench
