// Real models, whose paths WEFT_TEST_MODEL (the demo's) and WEFT_TEST_GEMMA3 hold: what only real weights and real files
// can show.
#include "weft/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/cli/program.h"
#include "tests/models/packed_vocabulary.h"

namespace weft::testing {
namespace {

class RealModel : public ::testing::Test {
 protected:
  explicit RealModel(const char* variable) : variable_(variable) {}
  void SetUp() override {
    const char* path = std::getenv(variable_);
    if (path == nullptr)
      GTEST_SKIP() << variable_ << " is not set; tools/run_model_tests.sh fetches models and sets it";
    path_ = path;
  }
  // Of the first `tokens` tokens of the English text: the mean of -log p, which for the fp64 reference is `expected`.
  // The mean of the errors' magnitudes bounds the error of the mean.
  void expect_mean_loss(const std::string& tokens, double expected) {
    const struct {
      const char* precision;
      double allowed;
    } modes[] = {{"exact", 0.001}, {"default", 0.015}, {"fast", 0.07}};
    for (const auto& [precision, allowed] : modes) {
      const Result result = run_weft(
          {"eval", path_, "-f", WEFT_TEST_DATA "/english.txt", "-n", tokens, "--precision", precision, "--json"});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      EXPECT_NEAR(std::log(result.last().at("perplexity").get<double>()), expected, allowed) << precision;
    }
  }
  const char* variable_;
  std::string path_;
};

class DemoModel : public RealModel {
 protected:
  DemoModel() : RealModel("WEFT_TEST_MODEL") {}
};

TEST_F(DemoModel, HasTheTokenizerThatTheVectorsWereMadeWith) {
  const Tokenizer tokenizer{ModelFile(path_)};
  for (const auto& vector : test::read_vectors("smollm"))
    EXPECT_EQ(tokenizer.encode(vector.text, {.add_special = false, .parse_special = true}), vector.ids) << vector.text;
  EXPECT_TRUE(tokenizer.is_end(tokenizer.token("<|im_end|>")));
}

TEST_F(DemoModel, AnswersAQuestionInItsTemplate) {
  const Result result = run_weft({"run", path_, "-p", "What is the capital of France?", "-n", "40", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.last().at("text").get<std::string>().find("Paris"), std::string::npos) << result.last();
  EXPECT_EQ(result.last().at("finish"), "end");
  EXPECT_EQ(result.last().at("prompt_tokens"), 37);
}

TEST_F(DemoModel, KeepsTheStatedErrorOfEachPrecision) { expect_mean_loss("300", 3.297210); }

class Gemma3 : public RealModel {
 protected:
  Gemma3() : RealModel("WEFT_TEST_GEMMA3") {}
};

TEST_F(Gemma3, HasItsConfig) {
  const ModelFile file(path_);
  const ModelConfig& config = file.config();
  EXPECT_EQ(config.num_layers, 18);
  EXPECT_EQ(config.vocab_size, 262144);
  EXPECT_EQ(config.sliding_window, 512);
  EXPECT_EQ(config.sliding_period, 6);
  EXPECT_EQ(config.rope.theta, 1e6f);
  EXPECT_EQ(config.sliding_rope.theta, 1e4f);
  EXPECT_TRUE(config.tied_embeddings && config.qk_norm && config.post_norms);
}

// Ids are those that SentencePiece gives.
TEST_F(Gemma3, TokenizesAsSentencePieceDoes) {
  const Tokenizer tokenizer{ModelFile(path_)};
  const EncodeOptions plain{.add_special = false, .parse_special = false};
  EXPECT_EQ(tokenizer.encode("Hello, world!", plain), (std::vector<int32_t>{9259, 236764, 1902, 236888}));
  EXPECT_EQ(tokenizer.encode("  two spaces   three\n\n\nnewlines\t\ttabs", plain),
            (std::vector<int32_t>{138, 13498, 9952, 139, 19891, 109, 208697, 255969, 39218}));
  EXPECT_EQ(tokenizer.encode("Hello, world!").front(), tokenizer.bos());
  EXPECT_EQ(tokenizer.encode("<start_of_turn>", {.add_special = false, .parse_special = true}),
            std::vector<int32_t>{tokenizer.token("<start_of_turn>")});
  EXPECT_GT(tokenizer.encode("<start_of_turn>", plain).size(), 1u);
  EXPECT_TRUE(tokenizer.is_end(tokenizer.token("<end_of_turn>")));
}

TEST_F(Gemma3, GivesEveryTextBackByteForByte) {
  const Tokenizer tokenizer{ModelFile(path_)};
  std::ifstream in(WEFT_TEST_DATA "/english.txt");
  const std::string english(std::istreambuf_iterator<char>(in), {});
  std::string bytes;
  for (int byte = 1; byte < 256; ++byte) bytes += static_cast<char>(byte);  // not UTF-8: by byte tokens
  for (const std::string& text : {english, bytes, std::string(" leading"), std::string("   "), std::string("\n\n \n"),
                                  std::string("Gr\u00fc\u00dfe \u65e5\u672c\u8a9e \U0001f916 \U0010ffff")})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST_F(Gemma3, GoesOnWithACount) {
  const Result result = run_weft({"run", path_, "-p", "One, two, three, four,", "-n", "8", "--temp", "0", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.last().at("text").get<std::string>().starts_with(" five, six, seven")) << result.last();
}

// More tokens than the windows see.
TEST_F(Gemma3, KeepsTheStatedErrorOfEachPrecision) { expect_mean_loss("700", 3.197525); }

}  // namespace
}  // namespace weft::testing
