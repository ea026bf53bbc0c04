// Layers whose steps the CPU walks, as one job a step: the fused step where there is no card. Exact whatever the
// precision: fp32 all along, weights as they are stored, keys and values in the cache's type.
#pragma once

#include <memory>

#include "decode/fused/partition.h"
#include "decode/layers.h"
#include "weft/model.h"

namespace weft::decode::fused {

// On options.team, in the machine's workers: a thread has several where there are more. Every step's schedule is proven
// before it runs. Throws Error(unsupported) for weights or a cache of a type that the walk does not have, what
// make_partition throws, and from `run` for steps of more than kMostRows rows. Config, options and sequences outlive
// it.
std::unique_ptr<Layers> make_walk_layers(const ModelConfig& config, ModelSources sources, const ForwardOptions& options,
                                         const Sequences& sequences, const Machine& machine);

}  // namespace weft::decode::fused
