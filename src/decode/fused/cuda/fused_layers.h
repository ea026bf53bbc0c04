// Layers whose steps a card runs as one launch each: steps of 1 to 8 rows, any number of requests.
//
//   if (const std::string why = why_not_fused(config, sources, options); why.empty())
//     layers = make_fused_layers(config, sources, options, sequences);
#pragma once

#include <memory>
#include <string>

#include "decode/layers.h"

namespace weft::decode::fused {

// "": nothing that is known before weights are read stands against it. Else what, as an error says it.
std::string why_not_fused(const ModelConfig& config, const ModelSources& sources, const ForwardOptions& options);
// The same of the device's free memory: for all weights once more.
std::string why_no_room(const ModelSources& sources, const ForwardOptions& options);

// Throws Error(unsupported), by name, for a card, a model, a precision or a cache that the kernel does not have, and
// from `run` for steps of more than kMostRows rows; Error(device_failed) from `run` where a wait gave up.
std::unique_ptr<Layers> make_fused_layers(const ModelConfig& config, const ModelSources& sources,
                                          const ForwardOptions& options, const Sequences& sequences);

}  // namespace weft::decode::fused
