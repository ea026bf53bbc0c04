// The operations of a step on a card: weights stay quantised there, steps are enqueued in a stream of their own, logits
// come back.
#pragma once

#include "decode/executor.h"

namespace weft::decode {

// Throws Error(unsupported | invalid_device) where there is no such card.
std::unique_ptr<Executor> make_cuda_executor(const ModelConfig& config, const ModelSources& sources,
                                             const ForwardOptions& options, const Sequences& sequences);

}  // namespace weft::decode
