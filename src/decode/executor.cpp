#include "decode/executor.h"

#include <utility>

#include "decode/cpu/executor.h"
#include "decode/cuda/executor.h"

namespace weft::decode {

std::unique_ptr<Executor> make_executor(const ModelConfig& config, ModelSources sources, const ForwardOptions& options,
                                        const Sequences& sequences) {
  if (options.device.kind != DeviceKind::cuda) return make_cpu_executor(config, std::move(sources), options, sequences);
  return make_cuda_executor(config, load_weights(sources, options), options, sequences);
}

}  // namespace weft::decode
