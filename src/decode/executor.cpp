#include "decode/executor.h"

#include <utility>

#include "decode/cpu/executor.h"
#include "decode/cuda/executor.h"

namespace weft::decode {

std::unique_ptr<Executor> make_executor(const ModelConfig& config, ModelSources sources, const ForwardOptions& options,
                                        const Sequences& sequences) {
  return options.device.kind == DeviceKind::cuda ? make_cuda_executor(config, sources, options, sequences)
                                                 : make_cpu_executor(config, std::move(sources), options, sequences);
}

}  // namespace weft::decode
