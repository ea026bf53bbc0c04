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

TEST(CtrlC, LeavesNoFigureOfATextOfWhichNothingWasScored) {
  const std::string text = temporary_file("long.txt", std::string(4000, 'a'));
  const Result result = run_weft({"eval", kStories, "-f", text, "--stride", "1", "--json"}, {.interrupt_after_ms = 1});
  EXPECT_EQ(result.exit_code, 130) << result.err;
  if (result.out.empty()) return;  // it came before the first step
  const nlohmann::json done = result.last();
  EXPECT_EQ(done.at("finish"), "interrupted");
  EXPECT_EQ(done.at("perplexity").is_null(), done.at("tokens") == 0) << done;
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

TEST(Chat, CommandsDoNotReachTheModel) {
  const Result result =
      run_weft({"run", chat_model(), "-n", "1", "--json"},
               {.input = "/help\n/hlep\n/nothing\nhi\n/system b\nhi\n/new\nhi\n/system\nhi\n /x\n/quit\nhi\n",
                .terminal = true});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text :
       {"/new, /clear", "/hlep is no command; did you mean /help?", "/nothing is no command; see /help"})
    EXPECT_NE(result.err.find(text), std::string::npos) << text << result.err;
  const std::vector<nlohmann::json> done = done_lines(result);
  ASSERT_EQ(done.size(), 5u) << result.out;
  const auto tokens = [&](size_t i) { return done[i].at("prompt_tokens").get<int>(); };
  EXPECT_GT(tokens(1), tokens(0));  // with the system prompt
  EXPECT_EQ(tokens(2), tokens(1));  // which a new chat keeps
  EXPECT_EQ(tokens(3), tokens(0));  // and without it again
  EXPECT_GT(tokens(4), tokens(3));  // a space before a slash is a message
}

TEST(Chat, GoesOnWhereTheTemplateRefusesASystemPrompt) {
  const std::string model = chat_model(
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}{{ messages[0].content "
      "}}");
  const Result result =
      run_weft({"run", model, "-n", "1", "--json"}, {.input = "/system b\nhi\n\x04", .terminal = true});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("no system here"), std::string::npos) << result.err;
  EXPECT_EQ(done_lines(result).size(), 1u);
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
