// What a file of the Llama family gives a forward pass: vectors, and the sources of its matrices, projections that
// share an input being one matrix. Each device packs the matrices in its own way.
#pragma once

#include <vector>

#include "ops/weight_source.h"
#include "weft/model.h"

namespace weft::decode {

using Sources = std::vector<ops::WeightSource>;

struct LayerVectors {
  std::vector<float> attn_norm = {}, ffn_norm = {};
  // Empty unless the model has them.
  std::vector<float> q_norm = {}, k_norm = {}, attn_post_norm = {}, ffn_post_norm = {}, qkv_bias = {}, output_bias = {};

  int64_t size() const {  // of all of them
    size_t size = 0;
    for (const auto* vector :
         {&attn_norm, &ffn_norm, &q_norm, &k_norm, &attn_post_norm, &ffn_post_norm, &qkv_bias, &output_bias})
      size += vector->size();
    return static_cast<int64_t>(size);
  }
};

struct LayerSources {
  LayerVectors vectors;
  Sources qkv;  // rows of q, then k, then v
  Sources output;
  Sources gate_up;  // rows of gate, then up
  Sources down;
};

struct ModelSources {
  Sources embedding;
  Sources own_head;  // empty when the embedding is the head
  std::vector<float> output_norm;
  std::vector<LayerSources> layers;
};

// Vectors are read, matrices when they are packed: the file outlives the sources. Throws what check_weights throws, and
// Error(unsupported) for vectors of another type than F32.
ModelSources read_sources(const ModelFile& file);

}  // namespace weft::decode
