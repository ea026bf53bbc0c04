#include "decode/weights.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "base/check.h"
#include "models/layers.h"

namespace weft::decode {
namespace {

Sources sources_of(const ModelFile& file, std::initializer_list<std::string_view> names) {
  Sources sources;
  for (const std::string_view name : names) {
    const WeightInfo& info = file.weight(name);
    sources.push_back(
        {.type = info.type,
         .rows = info.rows,
         .cols = info.cols,
         .read = [&file, &info](int64_t begin, int64_t end, void* to) { file.read(info, begin, end, to); }});
  }
  return sources;
}

// Appends a vector of the file; a name that is empty adds nothing.
void read_vector(const ModelFile& file, std::string_view name, std::vector<float>& to) {
  if (name.empty()) return;
  const WeightInfo& info = file.weight(name);
  check(info.type == WeightType::f32, ErrorCode::unsupported,
        "{}: tensor '{}': required type {}, supported F32 for vectors", file.path(), name, to_string(info.type));
  const size_t old = to.size();
  to.resize(old + static_cast<size_t>(info.rows * info.cols));
  file.read(info, 0, info.rows, to.data() + old);
  // Each number reaches every answer: said here, where it stands can be said.
  const auto wrong = std::find_if_not(to.begin() + static_cast<std::ptrdiff_t>(old), to.end(),
                                      [](float value) { return std::isfinite(value); });
  if (wrong != to.end())
    fail(ErrorCode::invalid_file, "{}: tensor '{}': element {} is {}; allowed are finite numbers", file.path(), name,
         wrong - to.begin() - static_cast<std::ptrdiff_t>(old), *wrong);
}

LayerVectors read_vectors(const ModelFile& file, const LayerNames& names) {
  LayerVectors vectors;
  read_vector(file, names.attn_norm, vectors.attn_norm);
  read_vector(file, names.ffn_norm, vectors.ffn_norm);
  read_vector(file, names.attn_q_norm, vectors.q_norm);
  read_vector(file, names.attn_k_norm, vectors.k_norm);
  read_vector(file, names.attn_post_norm, vectors.attn_post_norm);
  read_vector(file, names.ffn_post_norm, vectors.ffn_post_norm);
  for (const std::string& name : {names.attn_q_bias, names.attn_k_bias, names.attn_v_bias})
    read_vector(file, name, vectors.qkv_bias);
  read_vector(file, names.attn_output_bias, vectors.output_bias);
  return vectors;
}

}  // namespace

LayerParts parts_of(const ModelSources& sources) {
  if (sources.layers.empty()) return LayerParts::both;
  const LayerSources& layer = sources.layers[0];
  return layer.qkv.empty()       ? LayerParts::feed_forward
         : layer.gate_up.empty() ? LayerParts::attention
                                 : LayerParts::both;
}

const std::vector<float>& LayerVectors::of(WeightRole role) const {
  switch (role) {
    case WeightRole::attn_norm: return attn_norm;
    case WeightRole::ffn_norm: return ffn_norm;
    case WeightRole::q_norm: return q_norm;
    case WeightRole::k_norm: return k_norm;
    case WeightRole::attn_post_norm: return attn_post_norm;
    case WeightRole::ffn_post_norm: return ffn_post_norm;
    case WeightRole::qkv_bias: return qkv_bias;
    case WeightRole::output_bias: return output_bias;
    default: break;
  }
  ensure(false, "{} is no vector of a layer", to_string(role));
  return attn_norm;
}

int64_t LayerVectors::size() const {
  size_t size = 0;
  for (const WeightRole role : kLayerVectors) size += of(role).size();
  return static_cast<int64_t>(size);
}

ModelSources read_sources(const ModelFile& file) {
  check_weights(file);
  const ModelConfig& config = file.config();
  ModelSources sources;
  sources.embedding = sources_of(file, {kTokenEmbedding});
  if (!config.tied_embeddings) sources.own_head = sources_of(file, {kOutput});
  read_vector(file, kOutputNorm, sources.output_norm);
  for (int i = 0; i < config.num_layers; ++i) {
    const LayerNames names = layer_names(config, i);
    sources.layers.push_back({.vectors = read_vectors(file, names),
                              .qkv = sources_of(file, {names.attn_q, names.attn_k, names.attn_v}),
                              .output = sources_of(file, {names.attn_output}),
                              .gate_up = sources_of(file, {names.ffn_gate, names.ffn_up}),
                              .down = sources_of(file, {names.ffn_down})});
  }
  return sources;
}

}  // namespace weft::decode
