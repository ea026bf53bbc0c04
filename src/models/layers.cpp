#include "models/layers.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "models/gguf_reader.h"

namespace weft {

LayerNames layer_names(const ModelConfig& config, int layer) {
  const auto name = [layer](std::string_view part) { return fmt::format("blk.{}.{}", layer, part); };
  LayerNames names;
  names.attn_norm = name("attn_norm.weight");
  names.attn_q = name("attn_q.weight");
  names.attn_k = name("attn_k.weight");
  names.attn_v = name("attn_v.weight");
  if (config.qkv_bias) {
    names.attn_q_bias = name("attn_q.bias");
    names.attn_k_bias = name("attn_k.bias");
    names.attn_v_bias = name("attn_v.bias");
  }
  if (config.qk_norm) {
    names.attn_q_norm = name("attn_q_norm.weight");
    names.attn_k_norm = name("attn_k_norm.weight");
  }
  names.attn_output = name("attn_output.weight");
  if (config.output_bias) names.attn_output_bias = name("attn_output.bias");
  if (config.post_norms) {
    names.attn_post_norm = name("post_attention_norm.weight");
    names.ffn_post_norm = name("post_ffw_norm.weight");
  }
  names.ffn_norm = name("ffn_norm.weight");
  names.ffn_gate = name("ffn_gate.weight");
  names.ffn_up = name("ffn_up.weight");
  names.ffn_down = name("ffn_down.weight");
  return names;
}

bool layer_slides(const ModelConfig& config, int layer) {
  return config.sliding_window > 0 && (layer + 1) % config.sliding_period != 0;
}

std::vector<ExpectedWeight> expected_weights(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size, intermediate = config.intermediate_size, vocab = config.vocab_size;
  const int64_t q_rows = int64_t{config.num_qo_heads} * config.head_dim;
  const int64_t kv_rows = int64_t{config.num_kv_heads} * config.head_dim;
  std::vector<ExpectedWeight> expected;
  const auto matrix = [&](std::string_view name, int64_t rows, int64_t cols) {
    expected.push_back({std::string(name), rows, cols, false});
  };
  const auto vector = [&](std::string_view name, int64_t size) {
    if (!name.empty()) expected.push_back({std::string(name), 1, size, true});
  };
  matrix(kTokenEmbedding, vocab, hidden);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const LayerNames names = layer_names(config, layer);
    vector(names.attn_norm, hidden);
    matrix(names.attn_q, q_rows, hidden);
    matrix(names.attn_k, kv_rows, hidden);
    matrix(names.attn_v, kv_rows, hidden);
    vector(names.attn_q_bias, q_rows);
    vector(names.attn_k_bias, kv_rows);
    vector(names.attn_v_bias, kv_rows);
    vector(names.attn_q_norm, config.head_dim);
    vector(names.attn_k_norm, config.head_dim);
    matrix(names.attn_output, hidden, q_rows);
    vector(names.attn_output_bias, hidden);
    vector(names.attn_post_norm, hidden);
    vector(names.ffn_norm, hidden);
    matrix(names.ffn_gate, intermediate, hidden);
    matrix(names.ffn_up, intermediate, hidden);
    matrix(names.ffn_down, hidden, intermediate);
    vector(names.ffn_post_norm, hidden);
  }
  vector(kOutputNorm, hidden);
  if (!config.tied_embeddings) matrix(kOutput, vocab, hidden);
  if (!config.rope.divisors.empty()) vector(kRopeFactors, config.rope.rotary_dim / 2);
  return expected;
}

void check_weights(const ModelFile& file) {
  const ModelConfig& config = file.config();
  std::set<std::string_view> known;
  const std::vector<ExpectedWeight> expected = expected_weights(config);
  for (const ExpectedWeight& want : expected) {
    const WeightInfo& have = file.weight(want.name);
    check(have.rows == want.rows && have.cols == want.cols, ErrorCode::invalid_file,
          "{}: tensor '{}' has {} rows of {}; the metadata ask for {} rows of {}", file.path(), want.name, have.rows,
          have.cols, want.rows, want.cols);
    check(!want.is_vector || have.type == WeightType::f32, ErrorCode::unsupported,
          "{}: tensor '{}': required type {}, supported F32 for norms, biases and divisors", file.path(), want.name,
          to_string(have.type));
    known.insert(want.name);
  }
  for (const WeightInfo& have : file.weights())
    check(known.contains(have.name), ErrorCode::unsupported,
          "{}: tensor {}: required by the file, not among the tensors of the {} layers that are supported; without it "
          "the model would be computed wrongly",
          file.path(), quoted(have.name), config.architecture);
}

}  // namespace weft
