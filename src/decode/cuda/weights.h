// A model's weights on a card, once, whoever reads them: layered kernels or fused ones.
#pragma once

#include <array>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "decode/weights.h"
#include "ops/cuda/weights.h"

namespace weft::decode {

struct CardLayerWeights {
  std::array<const float*, std::size(kLayerVectors)> vectors = {};  // null where the model has none
  ops::CardMatrix qkv, output, gate_up, down;
};

struct CardWeights {
  Workspace vectors;
  Workspace matrices;  // all of them
  ops::CardMatrix embedding;
  ops::CardMatrix own_head;  // empty when the embedding is the head
  const float* output_norm = nullptr;
  std::vector<CardLayerWeights> layers;

  const ops::CardMatrix& head() const { return own_head.rows > 0 ? own_head : embedding; }
  const float* vector(WeightRole role, int layer) const;
  size_t bytes_per_token() const;  // of the matrices and vectors that one token multiplies
  std::string not_finite() const;  // of the first matrix that has such a scale: CardMatrix::not_finite
};

// The tiles in which a matrix is to lie; null: as ops::form_matrix has it.
using TilesOf = std::function<const ops::TiledMatrix*(WeightRole role, int layer)>;

// Reads and packs with the options' team; their `on_load` is told the share that is done. Throws Error(unsupported |
// invalid_device) where there is no such card, what ops::form_matrix and reading throw, and Error(out_of_memory),
// naming the bytes.
std::shared_ptr<const CardWeights> load_weights(const ModelSources& sources, const ForwardOptions& options,
                                                const TilesOf& tiles_of = {});

}  // namespace weft::decode
