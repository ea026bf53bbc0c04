// Shapes of models with random normal weights.
//
//   const ModelConfig config = config_of("8b");
//   ForwardPass forward = make_forward_pass(config, random_sources(config, WeightType::bf16), options);
#pragma once

#include <string>

#include "decode/weights.h"
#include "weft/model.h"

namespace weft::bench {

// Llama 3.1 70B and 8B, and Llama 3.2 1B.
ModelConfig config_of(const std::string& shape);

// All weights of one type; embedding and head stay bf16 beside groups of 128, as quantised models keep them. Of stacks
// the weights of one part of the layers.
decode::ModelSources random_sources(const ModelConfig& config, WeightType type,
                                    decode::LayerParts parts = decode::LayerParts::both);

}  // namespace weft::bench
