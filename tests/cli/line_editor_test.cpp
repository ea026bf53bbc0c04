// The chat's lines, on a terminal that moves its cursor.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/cli/terminal_session.h"
#include "tests/support/random_model.h"

namespace weft::testing {
namespace {

struct LineEditorTest : ::testing::Test {
  LineEditorTest() {
    GgufWriter gguf = random_model({});
    gguf.add("tokenizer.chat_template", "{% for m in messages %}<{{ m.role }}> {{ m.content }}{% endfor %}");
    model = temporary_file("edited.gguf", gguf.bytes());
  }
  std::vector<std::string> arguments() const { return {"run", model, "-n", "1", "--json", "--no-history"}; }
  // How many tokens the prompt of each answer has.
  static std::vector<int> prompts(const std::vector<std::string>& lines) {
    std::vector<int> tokens;
    for (const std::string& line : lines)
      if (const auto event = nlohmann::json::parse(line); event.at("event") == "done")
        tokens.push_back(event.at("prompt_tokens"));
    return tokens;
  }
  // The same of messages that nothing edits.
  std::vector<int> plain_prompts(const std::string& input) const {
    return prompts(run_weft(arguments(), {.input = input, .terminal = true}).lines());
  }
  std::string model;
};

TEST_F(LineEditorTest, EditsWhatIsTypedAndRecallsIt) {
  TerminalSession chat(arguments(), 80);
  chat.expect(">");
  chat.type("helo");
  chat.expect("> helo");
  chat.type("\033[Dl");
  chat.expect("> hello");
  chat.type("\r");
  chat.expect(">");
  chat.type("\033[A");
  chat.expect("> hello");
  chat.type("\001x \005!");  // to the beginning, to the end
  chat.expect("> x hello!");
  chat.type("\025");  // all of it goes
  chat.expect(">");
  chat.type("\004");
  EXPECT_EQ(chat.end(), 0);
  EXPECT_EQ(prompts(chat.out()), plain_prompts("hello\n\004"));
  EXPECT_EQ(chat.screen().unknown(), "") << "sequences that the screen does not know";
}

TEST_F(LineEditorTest, KeepsPastedLinesOneMessage) {
  TerminalSession chat(arguments(), 80);
  chat.expect(">");
  chat.type("\033[200~one\rtwo\r\033[201~");
  chat.expect("two");
  chat.type("\r");
  chat.expect(">");
  chat.type("\004");
  EXPECT_EQ(chat.end(), 0);
  EXPECT_EQ(prompts(chat.out()).size(), 1u);
}

TEST_F(LineEditorTest, ShowsOnePromptHoweverOftenTheTerminalIsResized) {
  TerminalSession chat(arguments(), 80);
  chat.expect(">");
  std::string typed;
  for (const int columns : {60, 100, 40, 41}) {
    typed += 'a';
    chat.type("a");
    chat.expect("> " + typed);
    chat.resize(columns);
    typed += 'b';
    chat.type("b");
    chat.expect("> " + typed);
    EXPECT_EQ(chat.rows_that_begin_with(">"), std::vector<std::string>{"> " + typed}) << columns;
  }
  chat.type("\r");
  chat.expect(">");
  chat.type("\004");
  EXPECT_EQ(chat.end(), 0);
  EXPECT_EQ(prompts(chat.out()), plain_prompts(typed + "\n\004"));
}

// Rows above the one that the cursor is in are of the same line, and some are there for one width alone.
TEST_F(LineEditorTest, FoldsALongLineAnewForAnotherWidth) {
  const std::string letters = "abcdefghijklmnopqrstuvwxyzabcdefghij";
  const std::string all = "> " + letters + "!?.";
  TerminalSession chat(arguments(), 30);
  chat.expect(">");
  chat.type(letters);
  chat.expect(("> " + letters).substr(30));
  size_t typed = letters.size() + 2;
  for (const int columns : {20, 50, 13}) {
    chat.resize(columns);
    chat.type(all.substr(typed++, 1));
    const auto width = static_cast<size_t>(columns);
    chat.expect(all.substr((typed - 1) / width * width, typed - (typed - 1) / width * width));
    EXPECT_EQ(chat.rows_that_begin_with(">"), std::vector<std::string>{all.substr(0, std::min(width, typed))})
        << columns;
    EXPECT_EQ(chat.rows_that_begin_with("weft: s").size(), 1u) << "what stands above it stays";
  }
  chat.type("\003");  // drops the line
  chat.expect(">");
  chat.type("\003");
  EXPECT_EQ(chat.end(), 130);
}

}  // namespace
}  // namespace weft::testing
