// Real models, whose paths WEFT_TEST_MODEL (the demo's) and WEFT_TEST_GEMMA3 hold: what only real weights and real
// files can show.
#include "weft/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/cli/program.h"
#include "tests/cli/serving.h"
#include "tests/models/packed_vocabulary.h"
#include "tests/serve/http/client.h"

namespace weft::testing {
namespace {

class RealModel : public ::testing::Test {
 protected:
  RealModel(const char* variable, const char* command) : variable_(variable), command_(command) {}
  void SetUp() override {
    const char* path = std::getenv(variable_);
    if (path == nullptr)
      GTEST_SKIP() << "needs a model: " << variable_ << " is not set; " << command_ << " fetches it and sets that";
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
  const char *variable_, *command_;
  std::string path_;
};

class DemoModel : public RealModel {
 protected:
  DemoModel() : RealModel("WEFT_TEST_MODEL", "make test-model") {}
};

TEST_F(DemoModel, HasTheTokenizerThatTheVectorsWereMadeWith) {
  const Tokenizer tokenizer{ModelFile(path_)};
  for (const auto& vector : test::read_vectors("smollm"))
    EXPECT_EQ(tokenizer.encode(vector.text, {.add_special = false, .parse_special = true}), vector.ids) << vector.text;
  EXPECT_TRUE(tokenizer.is_end(tokenizer.token("<|im_end|>")));
}

TEST_F(DemoModel, AnswersAQuestionInItsTemplate) {
  const Result result =
      run_weft({"run", path_, "-p", "What is the capital of France?", "-n", "40", "--temp", "0", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.last().at("text").get<std::string>().find("Paris"), std::string::npos) << result.last();
  EXPECT_EQ(result.last().at("finish"), "end");
  EXPECT_EQ(result.last().at("prompt_tokens"), 37);
}

TEST_F(DemoModel, ServesChatsSideBySideAsEachAlone) {
  Serving serving(path_, {"--ctx", "2048"});
  const auto ask = [&](const std::string& question, bool stream) {
    return Client(serving.port())
        .post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", question}}}},
                                       {"max_tokens", 40},
                                       {"temperature", 0},
                                       {"reproducible", true},
                                       {"stream", stream}});
  };
  const std::string france = "What is the capital of France?", two = "What is two plus two?";
  const auto text_of = [](const Reply& reply) { return reply.json().at("choices").at(0).at("message").at("content"); };
  const Reply alone = ask(france, false), other_alone = ask(two, false);
  ASSERT_EQ(alone.status, 200) << alone.body;
  EXPECT_NE(text_of(alone).get<std::string>().find("Paris"), std::string::npos) << alone.body;
  EXPECT_EQ(alone.json().at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(alone.json().at("usage").at("prompt_tokens"), 37);
  Reply streamed, other;
  std::thread first([&] { streamed = ask(france, true); }), second([&] { other = ask(two, false); });
  first.join();
  second.join();
  std::string text;
  for (size_t i = 0; i + 1 < streamed.events.size(); ++i)
    text += nlohmann::json::parse(streamed.events[i]).at("choices").at(0).at("delta").value("content", "");
  EXPECT_EQ(text, text_of(alone).get<std::string>());
  EXPECT_EQ(text_of(other), text_of(other_alone));
  EXPECT_EQ(serving.terminate(), 0);
}

TEST_F(DemoModel, KeepsTheStatedErrorOfEachPrecision) { expect_mean_loss("300", 3.297210); }

class Gemma3 : public RealModel {
 protected:
  Gemma3() : RealModel("WEFT_TEST_GEMMA3", "make test-model MODEL=gemma3") {}
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
