#include "decode/cuda/weights.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"

namespace weft::decode {
namespace {

// Vectors of the model one behind the other, each at 16 bytes, first on the host and then on the card.
class Vectors {
 public:
  size_t add(const std::vector<float>& values) {
    const size_t at = all_.size();
    all_.insert(all_.end(), values.begin(), values.end());
    all_.resize((all_.size() + 3) / 4 * 4);
    return at;
  }
  Workspace upload(cuda::Card& card) const {
    Workspace memory(Device::cuda(card.index()), all_.size() * sizeof(float));
    cuda::copy_to_card(card, memory.data(), all_.data(), memory.bytes(), nullptr);
    cuda::synchronize(card, nullptr);
    return memory;
  }

 private:
  std::vector<float> all_;
};

void load_vectors(cuda::Card& card, const ModelSources& sources, CardWeights& weights) {
  Vectors vectors;
  std::vector<std::pair<const float**, size_t>> places{{&weights.output_norm, vectors.add(sources.output_norm)}};
  for (size_t i = 0; i < sources.layers.size(); ++i)
    for (size_t vector = 0; vector < std::size(kLayerVectors); ++vector) {
      const std::vector<float>& values = sources.layers[i].vectors.of(kLayerVectors[vector]);
      if (!values.empty()) places.emplace_back(&weights.layers[i].vectors[vector], vectors.add(values));
    }
  weights.vectors = vectors.upload(card);
  for (const auto& [to, at] : places) *to = static_cast<const float*>(weights.vectors.data()) + at;
}

int64_t weights_of(const Sources& sources) {
  int64_t count = 0;
  for (const ops::WeightSource& source : sources) count += source.rows * source.cols;
  return count;
}

}  // namespace

const float* CardWeights::vector(WeightRole role, int layer) const {
  if (role == WeightRole::output_norm) return output_norm;
  const auto found = std::ranges::find(kLayerVectors, role);
  ensure(found != std::end(kLayerVectors), "{} is no vector of a layer", to_string(role));
  return layers[static_cast<size_t>(layer)].vectors[static_cast<size_t>(found - kLayerVectors)];
}

size_t CardWeights::bytes_per_token() const {
  size_t bytes = head().memory.bytes() + vectors.bytes();
  for (const CardLayerWeights& layer : layers)
    for (const ops::CardMatrix* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down})
      bytes += matrix->memory.bytes();
  return bytes;
}

CardWeights load_weights(cuda::Card& card, const ModelSources& sources, WorkerTeam& team,
                         const std::function<void(double)>& on_load) {
  CardWeights weights;
  weights.layers.resize(sources.layers.size());
  load_vectors(card, sources, weights);
  std::vector<std::pair<ops::CardMatrix*, const Sources*>> matrices{{&weights.embedding, &sources.embedding}};
  if (!sources.own_head.empty()) matrices.emplace_back(&weights.own_head, &sources.own_head);
  for (size_t i = 0; i < sources.layers.size(); ++i) {
    const LayerSources& from = sources.layers[i];
    CardLayerWeights& to = weights.layers[i];
    matrices.insert(
        matrices.end(),
        {{&to.qkv, &from.qkv}, {&to.output, &from.output}, {&to.gate_up, &from.gate_up}, {&to.down, &from.down}});
  }
  std::erase_if(matrices, [](const auto& matrix) { return matrix.second->empty(); });
  int64_t total = 0, done = 0;
  for (const auto& [to, from] : matrices) total += weights_of(*from);
  for (const auto& [to, from] : matrices) {
    *to = ops::load_matrix(card, *from, team);
    done += weights_of(*from);
    if (on_load) on_load(static_cast<double>(done) / static_cast<double>(total));
  }
  return weights;
}

}  // namespace weft::decode
