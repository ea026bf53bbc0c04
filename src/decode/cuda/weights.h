// A model's weights on a card.
#pragma once

#include <array>
#include <functional>
#include <iterator>

#include "decode/weights.h"
#include "ops/cuda/weights.h"

namespace weft::decode {

struct CardLayerWeights {
  std::array<const float*, std::size(kLayerVectors)> vectors = {};  // null where the model has none
  ops::CardMatrix qkv, output, gate_up, down;
};

struct CardWeights {
  Workspace vectors;
  ops::CardMatrix embedding;
  ops::CardMatrix own_head;  // empty when the embedding is the head
  const float* output_norm = nullptr;
  std::vector<CardLayerWeights> layers;

  const ops::CardMatrix& head() const { return own_head.rows > 0 ? own_head : embedding; }
  const float* vector(WeightRole role, int layer) const;
  size_t bytes_per_token() const;  // of the matrices and vectors that one token multiplies
};

// Reads and packs with the team; `on_load` is told the share that is done. Throws what load_matrix throws.
CardWeights load_weights(cuda::Card& card, const ModelSources& sources, WorkerTeam& team,
                         const std::function<void(double)>& on_load);

}  // namespace weft::decode
