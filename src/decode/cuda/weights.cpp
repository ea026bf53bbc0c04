#include "decode/cuda/weights.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "decode/executor.h"
#include "device/cuda/card.h"
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

struct Place {
  ops::CardMatrix* to;
  const Sources* from;
  WeightRole role;
  int layer;
};
std::vector<Place> places_of(CardWeights& weights, const ModelSources& sources) {
  std::vector<Place> places{{&weights.embedding, &sources.embedding, WeightRole::embedding, -1}};
  if (!sources.own_head.empty()) places.push_back({&weights.own_head, &sources.own_head, WeightRole::head, -1});
  for (size_t i = 0; i < sources.layers.size(); ++i) {
    const LayerSources& from = sources.layers[i];
    CardLayerWeights& to = weights.layers[i];
    const int layer = static_cast<int>(i);
    places.insert(places.end(), {{&to.qkv, &from.qkv, WeightRole::qkv, layer},
                                 {&to.output, &from.output, WeightRole::output, layer},
                                 {&to.gate_up, &from.gate_up, WeightRole::gate_up, layer},
                                 {&to.down, &from.down, WeightRole::down, layer}});
  }
  std::erase_if(places, [](const Place& place) { return place.from->empty(); });  // of a stack of one part of layers
  return places;
}

int64_t bytes_in_memory(const ops::CardMatrix& matrix) {
  constexpr int64_t kAlignment = 256;
  return (matrix.bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

const float* CardWeights::vector(WeightRole role, int layer) const {
  if (role == WeightRole::output_norm) return output_norm;
  const auto found = std::ranges::find(kLayerVectors, role);
  ensure(found != std::end(kLayerVectors), "{} is no vector of a layer", to_string(role));
  return layers[static_cast<size_t>(layer)].vectors[static_cast<size_t>(found - kLayerVectors)];
}

size_t CardWeights::bytes_per_token() const {
  int64_t bytes = head().bytes;
  for (const CardLayerWeights& layer : layers)
    for (const ops::CardMatrix* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down})
      bytes += matrix->bytes;
  return static_cast<size_t>(bytes) + vectors.bytes();
}

std::string CardWeights::not_finite() const {
  for (const CardLayerWeights& layer : layers)
    for (const ops::CardMatrix* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down})
      if (!matrix->not_finite.empty()) return matrix->not_finite;
  return own_head.not_finite.empty() ? embedding.not_finite : own_head.not_finite;
}

std::shared_ptr<const CardWeights> load_weights(const ModelSources& sources, const ForwardOptions& options,
                                                const TilesOf& tiles_of) {
  const Device device = options.device;
  cuda::require_card(device, "device");
  const auto made = std::make_shared<CardWeights>();
  CardWeights& weights = *made;
  weights.layers.resize(sources.layers.size());
  load_vectors(cuda::Card::at(device.index), sources, weights);
  const std::vector<Place> places = places_of(weights, sources);
  int64_t total = 0, done = 0;
  for (const Place& place : places) {
    const ops::TiledMatrix* tiles = tiles_of ? tiles_of(place.role, place.layer) : nullptr;
    *place.to = tiles != nullptr ? ops::form_matrix(device, to_string(place.role), *place.from, *tiles)
                                 : ops::form_matrix(device, to_string(place.role), *place.from);
    total += bytes_in_memory(*place.to);
  }
  weights.matrices = Workspace(device, static_cast<size_t>(total));
  for (const Place& place : places) {
    ops::load(*place.to, static_cast<char*>(weights.matrices.data()) + done, *place.from, team_of(options));
    done += bytes_in_memory(*place.to);
    if (options.on_load) options.on_load(static_cast<double>(done) / static_cast<double>(total));
  }
  return made;
}

}  // namespace weft::decode
