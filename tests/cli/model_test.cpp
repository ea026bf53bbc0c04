// The demo's model, whose path WEFT_TEST_MODEL holds: what only real weights and a real file can show.
#include "weft/model.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cli/program.h"
#include "tests/models/packed_vocabulary.h"

namespace weft::testing {
namespace {

class DemoModel : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("WEFT_TEST_MODEL");
    if (path == nullptr) GTEST_SKIP() << "WEFT_TEST_MODEL is not set; make test-model fetches the model and sets it";
    path_ = path;
  }
  std::string path_;
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

}  // namespace
}  // namespace weft::testing
