#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "models/byte_source.h"
#include "models/layers.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/random_model.h"
#include "weft/model.h"

namespace weft {
namespace {

using testing::encode;
using testing::GgufWriter;
using testing::random_model;
using testing::RandomModelOptions;

ModelConfig config_of(const GgufWriter& gguf) {
  const std::string bytes = gguf.bytes();
  const ModelFile file = open_model(open_memory("memory", bytes));
  check_weights(file);
  return file.config();
}

TEST(Config, of_stories260K) {
  const ModelFile file(WEFT_TEST_DATA "/stories260K.gguf");
  check_weights(file);
  const ModelConfig& config = file.config();
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, "stories260K");
  EXPECT_EQ(config.num_layers, 5);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 172);
  EXPECT_EQ(config.num_qo_heads, 8);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.vocab_size, 512);
  EXPECT_EQ(config.context_length, 512);
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(config.rope.pairs, RopePairs::adjacent);
  EXPECT_EQ(config.rope.rotary_dim, 8);
  EXPECT_EQ(config.rope.theta, 10000.f);
  EXPECT_EQ(config.rope.linear_scale, 1.f);
  EXPECT_EQ(config.rope.factor, 1.f);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_FALSE(config.qk_norm);
  EXPECT_EQ(file.weights().size(), 47u);
}

TEST(Config, families_differ_in_rotation_bias_norm_and_head) {
  const ModelConfig llama = config_of(random_model({}));
  EXPECT_FALSE(llama.tied_embeddings || llama.qkv_bias || llama.qk_norm);
  EXPECT_EQ(llama.rope.pairs, RopePairs::adjacent);
  const ModelConfig qwen2 = config_of(random_model({.architecture = "qwen2", .tied = true}));
  EXPECT_TRUE(qwen2.tied_embeddings && qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.qk_norm);
  EXPECT_EQ(qwen2.rope.pairs, RopePairs::halves);
  const ModelConfig qwen3 = config_of(random_model({.architecture = "qwen3"}));
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.rope.pairs, RopePairs::halves);
}

TEST(Config, defaults_stand_in_for_optional_keys) {
  GgufWriter gguf = random_model({.num_qo_heads = 6, .num_kv_heads = 6});
  for (const char* key : {"llama.attention.head_count_kv", "llama.attention.key_length", "llama.rope.freq_base",
                          "llama.rope.dimension_count"})
    gguf.remove(key);
  const ModelConfig config = config_of(gguf);
  EXPECT_EQ(config.num_kv_heads, 6);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rope.theta, 10000.f);
  EXPECT_EQ(config.rope.rotary_dim, 16);
}

TEST(Config, vocabulary_comes_from_the_embedding_where_there_is_no_tokenizer) {
  GgufWriter gguf = random_model({});
  gguf.remove("tokenizer.ggml.tokens");
  EXPECT_EQ(config_of(gguf).vocab_size, static_cast<int>(testing::kRandomModelVocab));
}

TEST(Config, linear_rope_scaling_is_read_in_both_spellings) {
  GgufWriter now = random_model({});
  now.add("llama.rope.scaling.type", "linear").add("llama.rope.scaling.factor", 4.f);
  EXPECT_EQ(config_of(now).rope.linear_scale, 4.f);
  GgufWriter before = random_model({});
  before.add("llama.rope.scale_linear", 2.f);
  EXPECT_EQ(config_of(before).rope.linear_scale, 2.f);
  GgufWriter none = random_model({});
  none.add("llama.rope.scaling.type", "none").add("llama.rope.scaling.factor", 4.f);
  EXPECT_EQ(config_of(none).rope.linear_scale, 1.f);
}

// Divisors as converters write them: 1 above 4 turns in 8192 tokens, the factor below one turn, a blend between.
void expect_llama_3_scaling(double factor) {
  constexpr int kPairs = 32;
  const double theta = 500000.0;
  std::string divisors;
  for (int i = 0; i < kPairs; ++i) {
    const double wavelength = 2 * 3.14159265358979323846 * std::pow(theta, 2.0 * i / (2 * kPairs));
    double divisor = 1.0;
    if (wavelength > 8192.0) {
      divisor = factor;
    } else if (wavelength > 2048.0) {
      const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
      divisor = 1.0 / ((1.0 - smooth) / factor + smooth);
    }
    divisors += encode(static_cast<float>(divisor));
  }
  GgufWriter gguf = random_model({.head_dim = 2 * kPairs, .theta = 500000.f});
  gguf.add_tensor({.name = "rope_freqs.weight", .extents = {kPairs}, .data = divisors});
  const RopeParams rope = config_of(gguf).rope;
  EXPECT_EQ(rope.factor, static_cast<float>(factor));
  EXPECT_EQ(rope.low_freq_factor, 1.f);
  EXPECT_EQ(rope.high_freq_factor, 4.f);
  EXPECT_EQ(rope.original_context, 8192);
}

TEST(Config, llama_3_scaling_is_recognised_by_its_divisors) {
  expect_llama_3_scaling(8.0);   // Llama 3.1
  expect_llama_3_scaling(32.0);  // Llama 3.2
}

TEST(Config, yarn_is_read_with_its_bounds_and_sharpens_logits) {
  GgufWriter gguf = random_model({.context_length = 1024});
  gguf.add("llama.rope.scaling.type", "yarn").add("llama.rope.scaling.factor", 4.f);
  const RopeParams plain = config_of(gguf).rope;
  EXPECT_EQ(plain.scaling, RopeScaling::yarn);
  EXPECT_EQ(plain.factor, 4.f);
  EXPECT_EQ(plain.original_context, 1024);
  EXPECT_EQ(plain.beta_fast, 32.f);
  EXPECT_EQ(plain.beta_slow, 1.f);
  EXPECT_NEAR(plain.attention_factor, 1.1386294, 1e-6);
  EXPECT_EQ(plain.linear_scale, 1.f);
  gguf.add("llama.rope.scaling.original_context_length", 256u).add("llama.rope.scaling.attn_factor", 0.5f);
  gguf.add("llama.rope.scaling.yarn_beta_fast", 16.f);
  const RopeParams given = config_of(gguf).rope;
  EXPECT_EQ(given.original_context, 256);
  EXPECT_EQ(given.beta_fast, 16.f);
  EXPECT_NEAR(given.attention_factor, 0.5693147, 1e-6);
}

TEST(Config, gemma3_slides_in_five_layers_of_six_with_a_rotation_of_their_own) {
  GgufWriter gguf = random_model({.architecture = "gemma3", .num_layers = 7, .theta = 1e6f});
  gguf.add("gemma3.rope.scaling.type", "linear").add("gemma3.rope.scaling.factor", 8.f);
  const ModelConfig config = config_of(gguf);
  EXPECT_TRUE(config.post_norms && config.qk_norm);
  EXPECT_EQ(config.gate, Gate::gelu_tanh);
  EXPECT_FLOAT_EQ(config.embedding_scale, std::sqrt(96.f));
  EXPECT_EQ(config.sm_scale, 0.f);
  EXPECT_EQ(config.attention_soft_cap, 0.f);
  EXPECT_EQ(config.logits_soft_cap, 0.f);
  EXPECT_EQ(config.sliding_window, 19);
  EXPECT_EQ(config.rope.pairs, RopePairs::halves);
  EXPECT_EQ(config.rope.theta, 1e6f);
  EXPECT_EQ(config.rope.linear_scale, 8.f);
  EXPECT_EQ(config.sliding_rope.pairs, RopePairs::halves);
  EXPECT_EQ(config.sliding_rope.theta, 10000.f);
  EXPECT_EQ(config.sliding_rope.linear_scale, 1.f);
  EXPECT_EQ(config.sliding_rope.rotary_dim, 16);
  for (int layer = 0; layer < 7; ++layer) EXPECT_EQ(layer_slides(config, layer), layer != 5) << layer;

  gguf.add("gemma3.attention.sliding_window_pattern", 2u).add("gemma3.rope.freq_base_swa", 500.f);
  gguf.add("gemma3.attention.scale", 0.125f);
  const ModelConfig given = config_of(gguf);
  for (int layer = 0; layer < 7; ++layer) EXPECT_EQ(layer_slides(given, layer), layer % 2 == 0) << layer;
  EXPECT_EQ(given.sliding_rope.theta, 500.f);
  EXPECT_EQ(given.sm_scale, 0.125f);

  gguf.remove("gemma3.attention.sliding_window");
  EXPECT_EQ(config_of(gguf).sliding_window, 0);
  EXPECT_FALSE(layer_slides(config_of(gguf), 0));
}

TEST(Config, gemma2_slides_in_every_other_layer_and_caps_its_logits) {
  GgufWriter gguf = random_model({.architecture = "gemma2", .theta = 5000.f});
  const ModelConfig config = config_of(gguf);
  EXPECT_FALSE(config.qk_norm);
  EXPECT_EQ(config.attention_soft_cap, 5.f);
  EXPECT_EQ(config.logits_soft_cap, 3.f);
  EXPECT_TRUE(layer_slides(config, 0));
  EXPECT_FALSE(layer_slides(config, 1));
  EXPECT_EQ(config.sliding_rope.theta, 5000.f);
  gguf.remove("gemma2.attention.sliding_window");
  EXPECT_EQ(config_of(gguf).sliding_window, 4096);
}

TEST(Config, the_largest_gemma_scales_logits_by_its_width) {
  const RandomModelOptions options{.architecture = "gemma2", .num_layers = 46, .hidden_size = 96, .num_qo_heads = 6};
  EXPECT_FLOAT_EQ(config_of(random_model(options)).sm_scale, 0.25f);
  for (const int layers : {45, 47}) {
    RandomModelOptions other = options;
    other.num_layers = layers;
    EXPECT_EQ(config_of(random_model(other)).sm_scale, 0.f) << layers;
  }
}

// Files of Qwen2 name a window that none of their contexts reaches.
TEST(Config, a_window_as_wide_as_the_context_is_none) {
  GgufWriter gguf = random_model({.architecture = "qwen2", .context_length = 512});
  gguf.add("qwen2.attention.sliding_window", 512u);
  EXPECT_EQ(config_of(gguf).sliding_window, 0);
  gguf.remove("qwen2.attention.sliding_window");
  gguf.add("qwen2.attention.sliding_window", 511u);
  EXPECT_THROW(config_of(gguf), Error);
}

TEST(Layers, names_cover_every_tensor_of_a_model_once) {
  for (const std::string architecture : {"llama", "qwen2", "qwen3", "gemma2", "gemma3"}) {
    const GgufWriter gguf = random_model({.architecture = architecture});
    const std::string bytes = gguf.bytes();
    const ModelFile file = open_model(open_memory("memory", bytes));
    std::set<std::string> expected;
    for (const ExpectedWeight& weight : expected_weights(file.config()))
      EXPECT_TRUE(expected.insert(weight.name).second);
    std::set<std::string> present;
    for (const WeightInfo& weight : file.weights()) present.insert(weight.name);
    EXPECT_EQ(expected, present);
  }
}

}  // namespace
}  // namespace weft
