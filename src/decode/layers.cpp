#include "decode/layers.h"

#include <utility>

#include "decode/layer_by_layer.h"

namespace weft::decode {

std::unique_ptr<Layers> make_layers(const ModelConfig& config, ModelSources sources, const ForwardOptions& options,
                                    const Sequences& sequences) {
  return std::make_unique<LayerByLayer>(make_program(config),
                                        make_executor(config, std::move(sources), options, sequences));
}

}  // namespace weft::decode
