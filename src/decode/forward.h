// A forward pass over weights that no file holds.
#pragma once

#include "decode/weights.h"
#include "weft/model.h"

namespace weft {

// Sources are read before it returns.
ForwardPass make_forward_pass(const ModelConfig& config, decode::ModelSources sources, const ForwardOptions& options);

}  // namespace weft
