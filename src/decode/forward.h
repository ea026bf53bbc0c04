// What the library's own programs ask of a forward pass: one over weights that no file holds, and where a step's time
// goes.
#pragma once

#include "decode/weights.h"
#include "weft/model.h"

namespace weft {

// Sources are read before it returns.
ForwardPass make_forward_pass(const ModelConfig& config, decode::ModelSources sources, const ForwardOptions& options);

namespace decode {

// How many tokens of keys and values fit into half of what so many bytes leave beside the model's weights.
int64_t tokens_that_fit(uint64_t memory, const ModelFile& file, const ForwardOptions& options);

// Of the host, in the parts of a step.
struct StepSeconds {
  double plan = 0;     // plans are made, or follow the lengths, and are on their way
  double upload = 0;   // ids, places and angles are on their way
  double enqueue = 0;  // layers, or their graph; of a CPU all of the work
  double wait = 0;     // until logits are there
};
// ForwardPass::step_form() where nothing else was asked for.
inline constexpr std::string_view kLayeredAsAsked = "layered: as asked";

struct StepProbe {
  // Of the last step that ran.
  static const StepSeconds& last(const ForwardPass& forward);
  // The layers of the last run's one step so many times more, one after another, before its sequences change: seconds
  // of each.
  static double replay(ForwardPass& forward, int count);
  // Layers::trace of that step.
  static std::string trace(ForwardPass& forward);
  // Layers::most_rows, choose and hold_back.
  static int64_t most_rows(const ForwardPass& forward, StepForm form);
  static bool choose(ForwardPass& forward, StepForm form);
  static void hold_back(ForwardPass& forward, bool holds);
};

}  // namespace decode

}  // namespace weft
