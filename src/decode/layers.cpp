#include "decode/layers.h"

#include <utility>

#include "base/clock.h"
#include "decode/cpu/layers.h"
#include "decode/cuda/layers.h"

namespace weft::decode {

void Layers::run(const Step& step, float* logits) {
  seconds_ = {.plan = seconds_of([&] { attention_.plan(step, sequences_.num_shares()); }),
              .upload = seconds_of([&] { upload(step); }),
              .enqueue = seconds_of([&] { enqueue(step, logits); }),
              .wait = seconds_of([&] { stream_.synchronize(); })};
}

double Layers::replay(const Step& step, float* logits, int count) {
  return seconds_of([&] {
           for (int i = 0; i < count; ++i) enqueue(step, logits);
           stream_.synchronize();
         }) /
         count;
}

void Layers::run_layers(const Step& step, float* logits) {
  embed(step);
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    const bool is_last = layer + 1 == config_.num_layers;
    append(layer);
    if (is_last && step.wanted.empty()) break;
    attend(layer);
    if (is_last) keep(step.wanted);
    feed_forward(layer);
  }
  if (!step.wanted.empty()) finish(logits);
}

std::unique_ptr<Layers> make_layers(const ModelConfig& config, ModelSources sources, const ForwardOptions& options,
                                    const Sequences& sequences) {
  return options.device.kind == DeviceKind::cuda ? make_cuda_layers(config, sources, options, sequences)
                                                 : make_cpu_layers(config, std::move(sources), options, sequences);
}

}  // namespace weft::decode
