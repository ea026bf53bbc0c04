// Models of every family with random weights: small, complete (they have a tokenizer), the same bytes for the same
// options on every machine.
//
//   random_model({.weights = GgufWriter::kQ4_1, .tied = true, .seed = 7}).write(path);
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/gguf_writer.h"

namespace weft::testing {

// The tokens: <unk>, <s>, </s>, the 256 bytes, a space, a to z, a full stop and a comma.
inline constexpr uint32_t kRandomModelVocab = 3 + 256 + 1 + 26 + 2;

struct RandomModelOptions {
  // llama, qwen2 (biases), qwen3 (norms of q and k), gemma2 (windows, more norms, caps), gemma3 (windows, more norms)
  std::string architecture = "llama";
  uint32_t weights = GgufWriter::kF32;  // of matrices, any but Q2_K; vectors are F32
  bool tied = false;
  uint32_t num_layers = 2;
  uint32_t hidden_size = 96;  // widths are multiples of 32 for the block types, of 256 for Q4_K and Q6_K
  uint32_t intermediate_size = 160;
  uint32_t num_qo_heads = 6, num_kv_heads = 2;
  uint32_t head_dim = 16;
  uint32_t context_length = 4096;
  float theta = 10000.f;
  uint32_t sliding_window = 19;        // of gemma2 and gemma3
  bool output_bias = false;            // of attention's output projection
  uint32_t vocab = kRandomModelVocab;  // the first so many tokens, 260 at least
  uint64_t seed = 1;
};

GgufWriter random_model(const RandomModelOptions& options);

}  // namespace weft::testing
