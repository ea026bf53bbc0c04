// The weights of a Llama-family model as the forward pass multiplies them: projections that share an input are one
// matrix, everything packed lies in one piece of huge-page memory.
#pragma once

#include <functional>
#include <vector>

#include "ops/gemm/linear.h"
#include "weft/model.h"

namespace weft::decode {

struct LayerWeights {
  std::vector<float> attn_norm, ffn_norm;
  // Empty unless the model has them.
  std::vector<float> q_norm, k_norm, attn_post_norm, ffn_post_norm, qkv_bias;
  gemm::PackedLinear qkv;  // rows of q, then k, then v
  gemm::PackedLinear output;
  gemm::PackedLinear gate_up;  // rows of gate, then up
  gemm::PackedLinear down;
};

struct ModelWeights {
  Workspace memory;  // what the matrices below lie in
  gemm::PackedLinear embedding;
  gemm::PackedLinear own_head;  // empty when the embedding is the head
  std::vector<float> output_norm;
  std::vector<LayerWeights> layers;

  const gemm::PackedLinear& head() const { return own_head.rows() > 0 ? own_head : embedding; }
  size_t bytes_per_token() const;  // of the matrices and vectors that one token multiplies
};

// Reads and packs with the whole team; `on_load` is told the share that is done.
ModelWeights load_weights(const ModelFile& file, Precision precision, Isa isa, WorkerTeam& team,
                          const std::function<void(double)>& on_load);

}  // namespace weft::decode
