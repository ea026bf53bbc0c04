// The operations of a step on the CPU: products by packed weights on a worker team.
#pragma once

#include "decode/executor.h"

namespace weft::decode {

std::unique_ptr<Executor> make_cpu_executor(const ModelConfig& config, ModelSources sources,
                                            const ForwardOptions& options, const Sequences& sequences);

}  // namespace weft::decode
