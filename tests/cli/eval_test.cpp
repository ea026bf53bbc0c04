// `weft eval` beside the library in this process.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <span>

#include "tests/cli/program.h"
#include "weft/model.h"
#include "weft/ops.h"

namespace weft::testing {
namespace {

TEST(Eval, ScoresATokenAfterAsManyBeforeItAsTheContextHolds) {
  const std::string text = WEFT_TEST_DATA "/english.txt";
  const Result result = run_weft(
      {"eval", kStories, "-f", text, "-n", "200", "--ctx", "150", "--stride", "50", "--precision", "exact", "--json"});
  const std::vector<std::string> lines = result.lines();
  ASSERT_EQ(lines.size(), 200u) << result.err;
  // The second window holds the tokens 50 to 199 and scores those from 150 on.
  const ModelFile file(kStories);
  std::ifstream in(text);
  const std::vector<int32_t> ids = Tokenizer(file).encode(std::string(std::istreambuf_iterator<char>(in), {}));
  ForwardPass forward(file, {.precision = Precision::exact, .max_tokens = 150});
  const TensorView logits = forward.run({{.sequence = forward.add_sequence(),
                                          .tokens = std::span(ids).subspan(50, 150),
                                          .logit_rows = ForwardPass::kAllRows}});
  const auto vocabulary = static_cast<size_t>(file.config().vocab_size);
  for (size_t position = 150; position < 200; ++position) {
    const std::span<const float> row(logits.as<const float>() + (position - 51) * vocabulary, vocabulary);
    EXPECT_NEAR(nlohmann::json::parse(lines[position - 1]).at("logprob"), log_probability(row, ids[position]), 1e-4);
  }
}

}  // namespace
}  // namespace weft::testing
