// Shapes of models for tests of partitions, and what a test of refusals asks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "decode/fused/partition.h"
#include "weft/error.h"

namespace weft::testing {

using namespace weft::decode;
using namespace weft::decode::fused;

inline ModelConfig llama_8b() {
  return {.architecture = "llama",
          .name = {},
          .num_layers = 32,
          .hidden_size = 4096,
          .intermediate_size = 14336,
          .num_qo_heads = 32,
          .num_kv_heads = 8,
          .head_dim = 128,
          .vocab_size = 128256,
          .context_length = 131072,
          .rope = {},
          .sliding_rope = {}};
}
inline ModelConfig smollm_135m() {
  return {.architecture = "llama",
          .name = {},
          .num_layers = 30,
          .hidden_size = 576,
          .intermediate_size = 1536,
          .num_qo_heads = 9,
          .num_kv_heads = 3,
          .head_dim = 64,
          .vocab_size = 49152,
          .context_length = 8192,
          .rope = {},
          .tied_embeddings = true,
          .sliding_rope = {}};
}
inline ModelConfig gemma_small() {
  return {.architecture = "gemma2",
          .name = {},
          .num_layers = 4,
          .hidden_size = 96,
          .intermediate_size = 160,
          .num_qo_heads = 6,
          .num_kv_heads = 2,
          .head_dim = 16,
          .vocab_size = 288,
          .context_length = 4096,
          .rope = {},
          .post_norms = true,
          .gate = Gate::gelu_tanh,
          .logits_soft_cap = 30.f,
          .sliding_window = 19,
          .sliding_period = 2,
          .sliding_rope = {}};
}

inline Partition partition_of(const ModelConfig& config, WeightType type, const Machine& machine) {
  const Program program = make_program(config);
  return make_partition(program, form_of(program, type), machine);
}

inline std::string error_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "nothing was thrown";
}
inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace weft::testing
