#include "bench/cuda/shapes.h"

#include <vector>

#include "bench/random_weights.h"

namespace weft::bench {

using decode::LayerParts;

ModelConfig config_of(const std::string& shape) {
  ModelConfig config;
  config.architecture = config.name = "llama";
  config.vocab_size = 128256;
  config.context_length = 8192;
  config.num_kv_heads = 8;
  config.rope.theta = 500000.f;
  const bool is_small = shape == "1b", is_large = shape == "70b";
  config.num_qo_heads = is_large ? 64 : 32;
  config.num_layers = is_large ? 80 : is_small ? 16 : 32;
  config.hidden_size = is_large ? 8192 : is_small ? 2048 : 4096;
  config.intermediate_size = is_large ? 28672 : is_small ? 8192 : 14336;
  config.head_dim = is_small ? 64 : 128;
  config.tied_embeddings = is_small;
  return config;
}

decode::ModelSources random_sources(const ModelConfig& config, WeightType type, LayerParts parts) {
  const RandomWeights random(type, 0.02f), of_head(type == WeightType::q4_g128 ? WeightType::bf16 : type, 0.02f);
  const int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
  const int64_t q = int64_t{config.num_qo_heads} * config.head_dim, kv = int64_t{config.num_kv_heads} * config.head_dim;
  const std::vector<float> ones(static_cast<size_t>(hidden), 1.f);
  decode::ModelSources sources;
  sources.embedding = {of_head.source(config.vocab_size, hidden)};
  if (!config.tied_embeddings) sources.own_head = {of_head.source(config.vocab_size, hidden)};
  sources.output_norm = ones;
  for (int i = 0; i < config.num_layers; ++i) {
    decode::LayerSources& layer = sources.layers.emplace_back();
    if (parts != LayerParts::feed_forward) {
      layer.vectors.attn_norm = ones;
      layer.qkv = {random.source(q, hidden), random.source(kv, hidden), random.source(kv, hidden)};
      layer.output = {random.source(hidden, q)};
    }
    if (parts != LayerParts::attention) {
      layer.vectors.ffn_norm = ones;
      layer.gate_up = {random.source(intermediate, hidden), random.source(intermediate, hidden)};
      layer.down = {random.source(hidden, intermediate)};
    }
  }
  return sources;
}

}  // namespace weft::bench
