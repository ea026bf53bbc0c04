// Which tensors a Llama-family model consists of: layer descriptions as data.
//
//   for (int layer = 0; layer < config.num_layers; ++layer) {
//     const LayerNames names = layer_names(config, layer);
//     load(file.weight(names.attn_q));                 // blk.3.attn_q.weight, [heads * head_dim, hidden]
//     if (!names.attn_q_bias.empty()) ...
//   }
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/model.h"

namespace weft {

inline constexpr std::string_view kTokenEmbedding = "token_embd.weight";  // [vocab, hidden]
inline constexpr std::string_view kOutputNorm = "output_norm.weight";     // [hidden]
inline constexpr std::string_view kOutput = "output.weight";              // [vocab, hidden]; none when tied
inline constexpr std::string_view kRopeFactors = "rope_freqs.weight";     // [rotary_dim / 2]; divides frequencies

// Names that are empty are not part of the model.
struct LayerNames {
  std::string attn_norm;                              // [hidden]
  std::string attn_q, attn_k, attn_v;                 // [heads * head_dim, hidden]
  std::string attn_q_bias, attn_k_bias, attn_v_bias;  // [heads * head_dim]; qkv_bias
  std::string attn_q_norm, attn_k_norm;               // [head_dim]; qk_norm
  std::string attn_output;                            // [hidden, heads * head_dim]
  std::string attn_output_bias;                       // [hidden]; output_bias
  std::string attn_post_norm, ffn_post_norm;          // [hidden]; post_norms
  std::string ffn_norm;                               // [hidden]
  std::string ffn_gate, ffn_up;                       // [intermediate, hidden]
  std::string ffn_down;                               // [hidden, intermediate]
};
LayerNames layer_names(const ModelConfig& config, int layer);

// Whether the layer sees a window of config.sliding_window tokens only.
bool layer_slides(const ModelConfig& config, int layer);

// A tensor that the model needs, with its shape. Vectors have one row.
struct ExpectedWeight {
  std::string name;
  int64_t rows, cols;
  bool is_vector;  // fp32 in the file: norms, biases
};
std::vector<ExpectedWeight> expected_weights(const ModelConfig& config);

// Checks that the file has every tensor of its config, in the right shape, and no other: a tensor that the forward
// pass would not read means a model that it would compute wrongly. After this, ModelFile::weight of any name above
// succeeds. Throws Error(invalid_file), Error(unsupported) for a tensor too many.
void check_weights(const ModelFile& file);

}  // namespace weft
