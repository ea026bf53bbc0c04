// Layers on the CPU: products by packed weights on a worker team.
#pragma once

#include "decode/layers.h"

namespace weft::decode {

std::unique_ptr<Layers> make_cpu_layers(const ModelConfig& config, ModelSources sources, const ForwardOptions& options,
                                        const Sequences& sequences);

}  // namespace weft::decode
