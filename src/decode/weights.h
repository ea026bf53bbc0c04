// What a file of the Llama family gives a forward pass: vectors, and the sources of its matrices, projections that
// share an input being one matrix. Each device packs the matrices in its own way.
#pragma once

#include <vector>

#include "base/check.h"
#include "decode/program.h"
#include "ops/weight_source.h"
#include "weft/model.h"

namespace weft::decode {

using Sources = std::vector<ops::WeightSource>;

struct LayerVectors {
  std::vector<float> attn_norm = {}, ffn_norm = {};
  // Empty unless the model has them.
  std::vector<float> q_norm = {}, k_norm = {}, attn_post_norm = {}, ffn_post_norm = {}, qkv_bias = {}, output_bias = {};

  const std::vector<float>& of(WeightRole role) const;
  int64_t size() const;  // of all of them
};

// The roles of a layer's vectors.
inline constexpr WeightRole kLayerVectors[] = {
    WeightRole::attn_norm,      WeightRole::ffn_norm,      WeightRole::q_norm,   WeightRole::k_norm,
    WeightRole::attn_post_norm, WeightRole::ffn_post_norm, WeightRole::qkv_bias, WeightRole::output_bias};

struct LayerSources {
  LayerVectors vectors;
  Sources qkv;  // rows of q, then k, then v
  Sources output;
  Sources gate_up;  // rows of gate, then up
  Sources down;
};

// A stack of one part of layers has no matrices of the other.
struct ModelSources {
  Sources embedding;
  Sources own_head;  // empty when the embedding is the head
  std::vector<float> output_norm;
  std::vector<LayerSources> layers;
};

LayerParts parts_of(const ModelSources& sources);

// The matrix of that role and layer among weights whose members have the names of these: ModelSources, or what a device
// made of them.
template <class Weights>
const auto& matrix_of(const Weights& weights, WeightRole role, int layer) {
  if (role == WeightRole::embedding) return weights.embedding;
  if (role == WeightRole::head) return weights.own_head;
  const auto& of_layer = weights.layers[static_cast<size_t>(layer)];
  switch (role) {
    case WeightRole::qkv: return of_layer.qkv;
    case WeightRole::output: return of_layer.output;
    case WeightRole::gate_up: return of_layer.gate_up;
    case WeightRole::down: return of_layer.down;
    default: break;
  }
  ensure(false, "{} is no matrix", to_string(role));
  return weights.embedding;
}

// Vectors are read, matrices when they are packed: the file outlives the sources. Throws what check_weights throws, and
// Error(unsupported) for vectors of another type than F32.
ModelSources read_sources(const ModelFile& file);

}  // namespace weft::decode
