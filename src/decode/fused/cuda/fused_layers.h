// Layers whose steps a card runs as one launch each: steps of 1 to 8 rows, as many as fit, of any number of requests.
//
//   if (const std::string why = why_not_fused(config, sources, options); why.empty())
//     layers = make_fused_layers(config, weights, sources, options, sequences);
#pragma once

#include <memory>
#include <string>

#include "decode/cuda/weights.h"
#include "decode/layers.h"
#include "weft/error.h"

namespace weft::decode::fused {

// What the error says, without its code.
std::string reason_of(const Error& error);
// "": nothing that is known before weights are read stands against it. Else what, as an error says it. Throws
// Error(invalid_argument) for more CTAs than the device has multiprocessors.
std::string why_not_fused(const ModelConfig& config, const ModelSources& sources, const ForwardOptions& options);
// check_fused (check_fused.h) has passed, and the weights lie in the tiles of card_partition (model_kernel.h). Throws
// Error(unsupported), by name, for fewer multiprocessors free than a step has CTAs and for scales that are not finite,
// and Error(out_of_memory), naming the bytes. From `run`: Error(unsupported) for steps of more rows than most_rows or
// of invariant ones, Error(device_failed) where a wait gave up; the next step is right.
std::unique_ptr<Layers> make_fused_layers(const ModelConfig& config, std::shared_ptr<const CardWeights> weights,
                                          const ModelSources& sources, const ForwardOptions& options,
                                          const Sequences& sequences);

}  // namespace weft::decode::fused
