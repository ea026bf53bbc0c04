#include "decode/layers.h"

#include "decode/cpu/layers.h"

namespace weft::decode {

void Layers::run(const Step& step, float* logits) {
  attention_.plan(step, sequences_.num_shares());
  begin(step);
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    const bool is_last = layer + 1 == config_.num_layers;
    append(layer);
    if (is_last && step.wanted.empty()) break;
    attend(layer);
    if (is_last) keep(step.wanted);
    feed_forward(layer);
  }
  if (!step.wanted.empty()) finish(logits);
  stream_.synchronize();
}

std::unique_ptr<Layers> make_layers(const ModelFile& file, const ModelConfig& config, const ForwardOptions& options,
                                    const Sequences& sequences) {
  return make_cpu_layers(file, config, options, sequences);
}

}  // namespace weft::decode
