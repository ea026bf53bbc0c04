// Decode of a model in both forms of its steps, layered and fused, in turns.
#pragma once

#include <functional>
#include <string>

#include "bench/bench.h"
#include "weft/model.h"

namespace weft::bench {

// What these rows ask of whoever runs them.
struct StepFormsRun {
  std::function<ForwardPass(StepForm)> make;      // the model's forward pass
  std::function<double(size_t bytes)> read_rate;  // bytes a second of plain reads of so many
  bool quick = false;                             // fewer contexts and rows
};
// Where the card has no room for both forms at once they follow each other. A form that the model has not, or has not
// with as many rows, is left out. A note says either, and why.
void measure_step_forms(const std::string& name, const StepFormsRun& run, BenchReport& report);

}  // namespace weft::bench
