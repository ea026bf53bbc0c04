// Ctrl-C, and the chat, which it may stop or end.
#include <gtest/gtest.h>

#include "tests/cli/program.h"
#include "tests/support/random_model.h"

namespace weft::testing {
namespace {

TEST(CtrlC, EndsAnAnswerCleanly) {
  const Result result = run_weft({"run", kStories, "-p", "", "-n", "-1", "--raw", "--json"}, {.interrupt_at_line = 3});
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(result.last().at("finish"), "interrupted");
}

// Each would run for many seconds more.
TEST(CtrlC, EndsEveryBenchmarkAfterItsStep) {
  for (const std::vector<std::string>& which : {std::vector<std::string>{"ceilings"},
                                                {"attention"},
                                                {"attention", "--numerics"},
                                                {"gemm"},
                                                {"plan"},
                                                {"plan", "--fit"},
                                                {"jit"},
                                                {"threads"},
                                                {"model", "--model", kStories}}) {
    std::vector<std::string> arguments = {"bench", "--json"};
    arguments.insert(arguments.end(), which.begin(), which.end());
    const Result result = run_weft(arguments, {.interrupt_at_line = 1});
    EXPECT_EQ(result.exit_code, 130) << which[0] << ": " << result.err;
    EXPECT_EQ(result.err, "") << which[0];
    EXPECT_LE(result.lines().size(), 3u) << which[0] << ": " << result.out;
    EXPECT_NO_THROW(result.last()) << which[0];
  }
}

TEST(CtrlC, EndsAPlanAfterItsStep) {
  const Result result = run_weft({"plan", "--qo", "10000000", "--kv", "10000000", "--causal", "--num-workers", "4"},
                                 {.interrupt_after_ms = 300});
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(result.out + result.err, "");
}

TEST(CtrlC, EndsTheWaitForStandardInput) {
  for (const char* verb : {"eval", "tokenize"}) {
    const Result result = run_weft({verb, kStories}, {.interrupt_after_ms = 300});
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_EQ(result.out + result.err, "");
  }
}

// ---- chat

std::string chat_model(
    const char* chat_template = "{% for m in messages %}<{{ m.role }}> {{ m.content }}{% endfor %}") {
  GgufWriter model = random_model({});
  model.add("tokenizer.chat_template", chat_template);
  return temporary_file("chats.gguf", model.bytes());
}

std::vector<nlohmann::json> done_lines(const Result& result) {
  std::vector<nlohmann::json> done;
  for (const std::string& line : result.lines())
    if (const auto event = nlohmann::json::parse(line); event.at("event") == "done") done.push_back(event);
  return done;
}

TEST(Chat, EndsWith130OnCtrlCAtThePromptAndWith0AtTheEndOfInput) {
  const std::string model = chat_model();
  EXPECT_EQ(run_weft({"run", model}, {.interrupt_at_text = "\n> ", .terminal = true}).exit_code, 130);
  EXPECT_EQ(run_weft({"run", model}, {.input = "\x04", .terminal = true}).exit_code, 0);
}

TEST(Chat, PrintsTheJsonLinesOfEachAnswer) {
  const Result result =
      run_weft({"run", chat_model(), "-n", "4", "--json"}, {.input = "hi\nand now\n\x04", .terminal = true});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<nlohmann::json> done = done_lines(result);
  int tokens = 0;
  for (const std::string& line : result.lines())
    if (const auto event = nlohmann::json::parse(line); event.at("event") == "token" && event.at("id") >= 0) ++tokens;
  ASSERT_EQ(done.size(), 2u) << result.out;
  EXPECT_EQ(done[0].at("prompt_tokens"), 6 + 1 + 2 + 2);  // <s>, the mark of a space, <user>, a space, hi
  EXPECT_GT(done[1].at("prompt_tokens"), done[0].at("prompt_tokens"));
  EXPECT_EQ(tokens, done[0].at("output_tokens").get<int>() + done[1].at("output_tokens").get<int>());
  // Only what is new is computed: at most what follows the first prompt.
  const double computed = done[1].at("prefill_tok_s").get<double>() * done[1].at("prefill_s").get<double>();
  EXPECT_LE(computed, done[1].at("prompt_tokens").get<double>() - done[0].at("prompt_tokens").get<double>() + 1e-6);
  EXPECT_GE(computed, 1 - 1e-6);
  for (const auto& answer : done)
    for (const char* key : {"ids", "text", "finish", "load_s", "prefill_s", "prefill_tok_s", "decode_tok_s"})
      EXPECT_TRUE(answer.contains(key)) << key;
}

TEST(Chat, AnswersAPromptWhoseEveryTokenItHasSeen) {
  const std::string last =
      chat_model("{% for m in messages %}{% if loop.last %}{{ m.content }}{% endif %}{% endfor %}");
  const Result result = run_weft({"run", last, "-n", "1", "--json"}, {.input = "hi\nhi\n\x04", .terminal = true});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<nlohmann::json> answers = done_lines(result);
  ASSERT_EQ(answers.size(), 2u) << result.out;
  EXPECT_EQ(answers[0].at("ids"), answers[1].at("ids"));
}

// Said once, a token is said again up to the end of the context.
TEST(Chat, GoesOnAfterAnAnswerThatCtrlCStopped) {
  const Result result = run_weft({"run", chat_model(), "-n", "-1", "--frequency-penalty", "-100", "--json"},
                                 {.input = "hi\n\x04", .interrupt_at_line = 3, .terminal = true});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.last().at("finish"), "interrupted");
}

}  // namespace
}  // namespace weft::testing
