#include "decode/generate.h"

#include <gtest/gtest.h>

namespace weft::decode {
namespace {

class Generating : public ::testing::Test {
 protected:
  Answer answer(const std::vector<int32_t>& prompt, int64_t max_tokens, int64_t context) {
    ForwardPass forward(file_, {.max_tokens = 512});
    Generator generator(forward, tokenizer_, {.temperature = 0.f}, {}, 0);
    const auto sequence = forward.add_sequence();
    const Answer result = generator.answer(sequence, prompt,
                                           {.max_tokens = max_tokens,
                                            .context = context,
                                            .on_token =
                                                [&](int32_t id, std::string_view text) {
                                                  if (id >= 0) ids_.push_back(id);
                                                  text_ += text;
                                                },
                                            .stopped = [&] { return static_cast<int>(ids_.size()) >= stop_after_; }});
    held_ = forward.length(sequence);
    return result;
  }

  const ModelFile file_{std::string(WEFT_TEST_DATA) + "/stories260K.gguf"};
  const Tokenizer tokenizer_{file_};
  const std::vector<int32_t> prompt_ = tokenizer_.encode("Once upon a time");
  std::vector<int32_t> ids_;
  std::string text_;
  int stop_after_ = 1000;
  int64_t held_ = 0;  // tokens of the sequence in the end
};

TEST_F(Generating, HandsOnWhatItAnswers) {
  const Answer result = answer(prompt_, 20, 512);
  EXPECT_EQ(result.finish, "length");
  EXPECT_EQ(result.ids.size(), 20u);
  EXPECT_EQ(result.ids, ids_);
  EXPECT_EQ(result.text, text_);
  std::vector<int32_t> all = prompt_;
  all.insert(all.end(), ids_.begin(), ids_.end());
  EXPECT_EQ(tokenizer_.decode(prompt_) + result.text, tokenizer_.decode(all));
}

TEST_F(Generating, EndsBetweenTokensWhenAskedTo) {
  stop_after_ = 3;
  const Answer result = answer(prompt_, 20, 512);
  EXPECT_EQ(result.finish, "interrupted");
  EXPECT_EQ(result.ids.size(), 3u);
}

TEST_F(Generating, EndsALongPromptBetweenItsParts) {
  stop_after_ = 0;
  std::vector<int32_t> prompt(513, prompt_.back());
  EXPECT_EQ(answer(prompt, 20, 1024).finish, "interrupted");
  EXPECT_EQ(ids_.size(), 0u);
}

TEST_F(Generating, EndsWhereTheContextDoes) {
  const auto length = static_cast<int64_t>(prompt_.size());
  const Answer result = answer(prompt_, 20, length + 2);
  EXPECT_EQ(result.finish, "context");
  EXPECT_EQ(result.ids.size(), 3u);  // the last one is said, and not computed with
}

TEST_F(Generating, ComputesNothingBehindTheLastTokenThatItSays) {
  const auto length = static_cast<int64_t>(prompt_.size());
  answer(prompt_, 5, 512);
  EXPECT_EQ(held_, length + 4);
  const Answer full = answer(prompt_, 20, length);
  EXPECT_EQ(full.finish, "context");
  EXPECT_EQ(full.ids.size(), 1u);
  EXPECT_EQ(held_, length);
}

TEST_F(Generating, SaysHowLongAPromptTookThatWasComputedBeforeItWasStopped) {
  stop_after_ = 0;
  const Answer result = answer(prompt_, 20, 512);
  EXPECT_EQ(result.finish, "interrupted");
  EXPECT_GT(result.prefill_s, 0);
}

TEST_F(Generating, RefusesAPromptBeyondTheContext) {
  try {
    answer(prompt_, 20, static_cast<int64_t>(prompt_.size()) - 1);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::context_full);
  }
}

}  // namespace
}  // namespace weft::decode
