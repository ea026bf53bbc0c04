#include "decode/layers.h"

#include <utility>

#include "base/check.h"
#include "decode/cuda/card_layers.h"
#include "decode/fused/cuda/fused_layers.h"
#include "decode/layer_by_layer.h"

namespace weft::decode {
namespace {

// Of a matrix made of the sources, one behind the other.
Weight shape_of(WeightRole role, const Sources& sources) {
  Weight shape{role, 0, sources.empty() ? 0 : sources[0].cols};
  for (const ops::WeightSource& source : sources) shape.rows += source.rows;
  return shape;
}
Weight shape_of(WeightRole role, const std::vector<float>& vector) {
  return {role, 1, static_cast<int64_t>(vector.size())};
}

Weight shape_in(const ModelSources& sources, WeightRole role, int layer) {
  if (is_matrix(role)) return shape_of(role, matrix_of(sources, role, layer));
  if (role == WeightRole::output_norm) return shape_of(role, sources.output_norm);
  return shape_of(role, sources.layers[static_cast<size_t>(layer)].vectors.of(role));
}

// That the sources have each weight that the program multiplies by, in its shape: executors read them without a look.
void ensure_weights(const Program& program, const ModelSources& sources) {
  ensure(sources.layers.size() == static_cast<size_t>(program.num_layers), "weights of {} layers for a program of {}",
         sources.layers.size(), program.num_layers);
  for (const Operation& operation : program.operations)
    for (const Weight& weight : operation.weights) {
      const Weight given = shape_in(sources, weight.role, operation.layer);
      if (given == weight) continue;
      ensure(false, "layer {}, {}: the weights have {} rows of {} as {}", operation.layer,
             to_string(operation, program), given.rows, given.cols, to_string(weight.role));
    }
}

}  // namespace

MadeLayers make_layers(const ModelConfig& config, ModelSources sources, const ForwardOptions& options,
                       const Sequences& sequences) {
  ensure_weights(make_program(config, parts_of(sources)), sources);
  if (options.device.kind == DeviceKind::cuda) return make_card_layers(config, sources, options, sequences);
  std::string form = fused::choose_step(config, sources, options).layered;
  Program program = make_program(config, parts_of(sources));
  return {
      std::make_unique<LayerByLayer>(std::move(program), make_executor(config, std::move(sources), options, sequences)),
      std::move(form)};
}

}  // namespace weft::decode
