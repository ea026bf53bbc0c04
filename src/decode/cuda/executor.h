// The operations of a step on a card: weights stay quantised there, steps are enqueued in a stream of their own, logits
// come back.
#pragma once

#include <memory>

#include "decode/cuda/weights.h"
#include "decode/executor.h"

namespace weft::decode {

// On the card of the weights.
std::unique_ptr<Executor> make_cuda_executor(const ModelConfig& config, std::shared_ptr<const CardWeights> weights,
                                             const ForwardOptions& options, const Sequences& sequences);

}  // namespace weft::decode
