// `weft plan MODEL`: who streams which of a model's weights in a fused step.
#pragma once

#include <string>

#include "cli/cli.h"

namespace weft::cli {

struct PlanModelOptions {
  std::string model;    // a GGUF file
  int num_workers = 0;  // 0: the threads of this machine
  std::string svg;      // drawn there, unless empty
  std::string print;    // "cuda": the text of the kernel for a card, and nothing else
  int rows = 1;         // of its steps
};

void plan_model(const PlanModelOptions& options, const Context& context);

}  // namespace weft::cli
