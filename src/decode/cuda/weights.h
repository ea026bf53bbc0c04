// A model's weights on a card.
#pragma once

#include <functional>

#include "decode/weights.h"
#include "ops/cuda/weights.h"

namespace weft::decode {

struct CardLayerWeights {
  // Vectors; null where the model has none.
  const float *attn_norm, *ffn_norm, *q_norm, *k_norm, *attn_post_norm, *ffn_post_norm, *qkv_bias, *output_bias;
  ops::CardMatrix qkv, output, gate_up, down;
};

struct CardWeights {
  Workspace vectors;
  ops::CardMatrix embedding;
  ops::CardMatrix own_head;  // empty when the embedding is the head
  const float* output_norm = nullptr;
  std::vector<CardLayerWeights> layers;

  const ops::CardMatrix& head() const { return own_head.rows > 0 ? own_head : embedding; }
  size_t bytes_per_token() const;  // of the matrices and vectors that one token multiplies
};

// Reads and packs with the team; `on_load` is told the share that is done. Throws what load_matrix throws.
CardWeights load_weights(cuda::Card& card, const ModelSources& sources, WorkerTeam& team,
                         const std::function<void(double)>& on_load);

}  // namespace weft::decode
