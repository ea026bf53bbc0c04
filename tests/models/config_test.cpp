#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

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

TEST(Config, divisors_of_frequencies_may_have_any_values) {
  const std::vector<float> divisors = {1.f, 0.25f, 3.f, 1.f, 1e30f, 1e-3f, 8.f, 32.f};
  std::string data;
  for (const float divisor : divisors) data += encode(divisor);
  GgufWriter gguf = random_model({});
  gguf.add_tensor({.name = "rope_freqs.weight", .extents = {divisors.size()}, .data = data});
  EXPECT_EQ(config_of(gguf).rope.divisors, divisors);
  EXPECT_EQ(config_of(gguf).rope.factor, 1.f);
}

TEST(Config, one_number_a_layer_is_that_of_the_model_where_all_are_equal) {
  GgufWriter gguf = random_model({});
  const struct {
    const char* key;
    int32_t value;
  } keys[] = {
      {"llama.attention.head_count", 6}, {"llama.attention.head_count_kv", 2}, {"llama.feed_forward_length", 160}};
  for (const auto& [key, value] : keys) {
    gguf.remove(key);
    gguf.add(key, std::vector<int32_t>{value, value});
  }
  const ModelConfig config = config_of(gguf);
  EXPECT_EQ(config.num_qo_heads, 6);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.intermediate_size, 160);
}

TEST(Config, a_bias_of_the_output_projection_is_part_of_a_model_that_has_it) {
  EXPECT_FALSE(config_of(random_model({})).output_bias);
  GgufWriter gguf = random_model({.output_bias = true});
  EXPECT_TRUE(config_of(gguf).output_bias);
  gguf.remove("blk.1.attn_output.bias");
  EXPECT_THROW(config_of(gguf), Error);
}

TEST(Config, keys_that_say_what_every_model_is_change_nothing) {
  GgufWriter gguf = random_model({});
  gguf.add("general.type", "model").add("llama.attention.causal", true);
  EXPECT_EQ(config_of(gguf).num_layers, 2);
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
  gguf.remove("gemma2.attn_logit_softcapping");
  gguf.remove("gemma2.final_logit_softcapping");
  EXPECT_EQ(config_of(gguf).attention_soft_cap, 50.f);
  EXPECT_EQ(config_of(gguf).logits_soft_cap, 30.f);
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
