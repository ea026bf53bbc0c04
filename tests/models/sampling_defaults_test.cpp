#include "models/sampling_defaults.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>

#include "base/log.h"
#include "models/byte_source.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/random_model.h"
#include "weft/model.h"

namespace weft {
namespace {

using testing::GgufWriter;
using testing::random_model;

std::optional<SamplingDefaults> defaults_of(const GgufWriter& gguf) {
  const std::string bytes = gguf.bytes();
  return sampling_defaults(open_model(open_memory("memory", bytes)));
}

GgufWriter model(const std::string& architecture, const std::string& name, bool chats = true) {
  GgufWriter gguf = random_model({.architecture = architecture});
  gguf.remove("general.name");
  gguf.add("general.name", name);
  if (chats) gguf.add("tokenizer.chat_template", "{{ messages[0].content }}");
  return gguf;
}

std::string recommended(const std::string& architecture, const std::string& name) {
  const auto defaults = defaults_of(model(architecture, name));
  return defaults ? defaults->source + ": " + to_string(defaults->params, defaults->penalties) : "none";
}

TEST(SamplingDefaults, of_the_family_that_the_name_tells) {
  const std::string llama = "Llama 3: temperature 0.6, top-p 0.9", smol = "SmolLM2: temperature 0.2, top-p 0.9";
  EXPECT_EQ(recommended("llama", "Smollm2 135M 8k Lc100K Mix1 Ep2"), smol);
  EXPECT_EQ(recommended("llama", "SmolLM2-1.7B-Instruct"), smol);
  for (const char* name :
       {"Meta Llama 3.1 8B Instruct", "Meta-Llama-3-8B-Instruct", "Llama 3.2 1B Instruct", "llama3_8b"})
    EXPECT_EQ(recommended("llama", name), llama) << name;
  EXPECT_EQ(recommended("qwen2", "Qwen2.5 7B Instruct"),
            "Qwen 2.5: temperature 0.7, top-k 20, top-p 0.8, repetition penalty 1.05");
  EXPECT_EQ(recommended("qwen2", "Qwen2.5 0.5B Instruct"),
            "Qwen 2.5: temperature 0.7, top-k 20, top-p 0.8, repetition penalty 1.1");
  EXPECT_EQ(recommended("qwen3", "Qwen3 0.6B"), "Qwen 3, thinking: temperature 0.6, top-k 20, top-p 0.95");
  EXPECT_EQ(recommended("qwen3", "Qwen3 4B Instruct 2507"),
            "Qwen 3, not thinking: temperature 0.7, top-k 20, top-p 0.8");
  EXPECT_EQ(recommended("gemma2", "Gemma 2 2b It"), "Gemma 2: temperature 1, top-k 64, top-p 0.95");
  EXPECT_EQ(recommended("gemma3", "whatever"), "Gemma 3: temperature 1, top-k 64, top-p 0.95");
}

TEST(SamplingDefaults, none_of_names_that_only_look_alike) {
  for (const char* name : {"Codellama 34b", "Llama 30B", "TinyLlama 1.1B Chat 3T", "Llama 2 7B Chat", "model", ""})
    EXPECT_EQ(recommended("llama", name), "none") << name;
  EXPECT_EQ(recommended("qwen2", "DeepSeek R1 Distill Qwen 1.5B"), "none");
}

TEST(SamplingDefaults, none_of_a_family_for_a_model_without_a_chat) {
  EXPECT_FALSE(defaults_of(model("llama", "SmolLM2-135M", false)));
}

TEST(SamplingDefaults, what_the_file_says_goes_before_the_family) {
  GgufWriter gguf = model("gemma3", "Gemma 3 1b It");
  gguf.add("general.sampling.temp", 0.5f);
  gguf.add("general.sampling.top_k", int64_t{40});
  gguf.add("general.sampling.min_p", 0.05f);
  gguf.add("general.sampling.penalty_repeat", 1.1f);
  const auto defaults = defaults_of(gguf);
  ASSERT_TRUE(defaults);
  EXPECT_EQ(defaults->source, "the model's file");
  EXPECT_EQ(to_json(defaults->params, defaults->penalties),
            R"({"temperature":0.5,"top_k":40,"top_p":0.95,"min_p":0.05,"repetition_penalty":1.1})");
}

TEST(SamplingDefaults, what_the_file_leaves_open_is_off) {
  GgufWriter gguf = model("llama", "somebody's own", false);
  gguf.add("general.sampling.top_p", 0.8f);
  gguf.add("general.sampling.temp", uint32_t{1});  // some write integers
  const auto defaults = defaults_of(gguf);
  ASSERT_TRUE(defaults);
  EXPECT_EQ(to_json(defaults->params, defaults->penalties),
            R"({"temperature":1,"top_k":0,"top_p":0.8,"min_p":0,"repetition_penalty":1})");
  GgufWriter greedy = model("llama", "somebody's own");
  greedy.add("general.sampling.temp", 0.f);
  greedy.add("general.sampling.top_k", int64_t{-1});
  const auto none = defaults_of(greedy);
  ASSERT_TRUE(none);
  EXPECT_EQ(to_string(none->params, none->penalties), "greedy");
}

TEST(SamplingDefaults, values_out_of_range_are_left_out_and_texts_refused) {
  for (const float bad : {-1.f, 101.f, NAN}) {
    GgufWriter gguf = model("llama", "SmolLM2");
    gguf.add("general.sampling.temp", bad);
    const auto defaults = defaults_of(gguf);
    ASSERT_TRUE(defaults);
    EXPECT_EQ(defaults->params.temperature, 0.2f) << bad;
    EXPECT_EQ(defaults->source, "SmolLM2");
  }
}

// File, key, value, and what is allowed.
TEST(SamplingDefaults, what_is_no_number_is_refused_by_its_name) {
  const auto message = [](const GgufWriter& gguf) -> std::string {
    try {
      defaults_of(gguf);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  GgufWriter text = model("llama", "SmolLM2");
  text.add("general.sampling.top_p", "much");
  EXPECT_EQ(
      message(text),
      "invalid_file: memory: metadata 'general.sampling.top_p' is 'much'; allowed are numbers above 0 up to 1 (off)");
  GgufWriter truth = model("llama", "SmolLM2");
  truth.add("general.sampling.top_k", true);
  EXPECT_EQ(
      message(truth),
      "invalid_file: memory: metadata 'general.sampling.top_k' is neither a number nor a text; allowed are numbers "
      "from -1 to 2147483647, where 0 and less are off");
}

TEST(SamplingDefaults, warnings_say_what_is_allowed) {
  GgufWriter gguf = model("llama", "SmolLM2");
  gguf.add("general.sampling.top_p", 0.f);
  static std::string said;
  log::set_sink([](int, std::string_view line) { said = line; });
  const auto defaults = defaults_of(gguf);
  log::set_sink(nullptr);
  ASSERT_TRUE(defaults);
  EXPECT_EQ(defaults->params.top_p, 0.9f);
  EXPECT_EQ(
      said,
      "memory: metadata 'general.sampling.top_p' is 0; allowed are numbers above 0 up to 1 (off): it is left out");
}

// As Transformers does: who recommends a top-k recommends to draw.
TEST(SamplingDefaults, a_file_that_says_top_k_alone_is_drawn_from_at_temperature_one) {
  GgufWriter gguf = model("llama", "somebody's own");
  gguf.add("general.sampling.top_k", int64_t{40});
  const auto defaults = defaults_of(gguf);
  ASSERT_TRUE(defaults);
  EXPECT_EQ(to_string(defaults->params, defaults->penalties), "temperature 1, top-k 40");
}

}  // namespace
}  // namespace weft
