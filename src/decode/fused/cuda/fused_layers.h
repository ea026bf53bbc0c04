// Layers whose steps a card runs as one launch each: steps of 1 to 8 rows, as many as fit, of any number of requests.
//
//   if (StepChoice choice = choose_step(config, sources, options); choice.partition)
//     layers = make_fused_layers(config, weights, sources, *choice.partition, options, sequences);
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "decode/cuda/weights.h"
#include "decode/fused/partition.h"
#include "decode/layers.h"
#include "weft/error.h"

namespace weft::decode::fused {

// How steps of few rows run, as far as it is known before weights are read.
struct StepChoice {
  std::optional<Partition> partition;  // fused, in this one
  std::string layered;                 // else ForwardPass::step_form(): "layered: ", and why
};
// ForwardPass::step_form() where the error stands against fused steps: "layered: the fused step: required device cpu".
std::string layered_after(const Error& error);
// Throws Error(invalid_argument) for more CTAs than the device has multiprocessors, and where options.step is fused
// what check_fused (check_fused.h) throws.
StepChoice choose_step(const ModelConfig& config, const ModelSources& sources, const ForwardOptions& options);
// The partition is choose_step's, and the weights lie in its tiles. Throws Error(unsupported), by name, for fewer
// multiprocessors free than a step has CTAs and for scales that are not finite, and Error(out_of_memory), naming the
// bytes. From `run`: Error(unsupported) for steps of more rows than most_rows or of invariant ones,
// Error(device_failed) where a wait gave up; the next step is right.
std::unique_ptr<Layers> make_fused_layers(const ModelConfig& config, std::shared_ptr<const CardWeights> weights,
                                          const ModelSources& sources, Partition partition,
                                          const ForwardOptions& options, const Sequences& sequences);

}  // namespace weft::decode::fused
