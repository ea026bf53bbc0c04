// Standard input and output that are closed, full or left by their reader.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/cli/program.h"
#include "tests/support/gguf_writer.h"

namespace weft::testing {
namespace {

using Arguments = std::vector<std::string>;

const Arguments kAnswer = {"run", kStories, "-p", "Once", "-n", "5", "--raw"};

TEST(ClosedInput, IsNamedAndNeverReadAsAFileOfWefts) {
  for (const Arguments& arguments : {Arguments{"eval", kStories}, {"run", kStories, "--raw"}, {"tokenize", kStories}})
    expect_refusal(run_weft(arguments, {.closed = {0}}), 3, "io_error", "standard input is closed");
  expect_refusal(run_weft({"eval", kStories, "-f", "-"}, {.closed = {0}}), 3, "io_error", "standard input is closed");
  EXPECT_EQ(run_weft({"tokenize", kStories}, {.closed = {0, 1, 2}}).exit_code, 3);
}

TEST(ClosedInput, IsNoMatterToWhoDoesNotReadIt) {
  EXPECT_EQ(run_weft({"tokenize", kStories, "-p", "a", "--no-special"}, {.closed = {0}}).out, "261\n");
}

TEST(ClosedOutput, IsAnErrorOfEveryVerb) {
  for (const Arguments& arguments : {kAnswer,
                                     Arguments{"run", kStories, "-p", "Once", "--raw", "--json"},
                                     {"eval", kStories, "-p", "a b"},
                                     {"eval", kStories, "-p", "a b", "--json"},
                                     {"tokenize", kStories, "-p", "a"},
                                     {"plan"},
                                     {"doctor"},
                                     {"doctor", "--json"},
                                     {"jit", "list"},
                                     {"bench", "ceilings", "--quick"},
                                     {"--help"},
                                     {"--version"}})
    expect_refusal(run_weft(arguments, {.closed = {1}}), 3, "io_error", "standard output is closed");
}

TEST(ClosedOutput, IsNotTakenByATrace) {
  const TempFolder folder;
  const std::string path = folder.path("trace.json");
  const RunOptions options{.environment = {"WEFT_TRACE=" + path}, .closed = {1}};
  expect_refusal(run_weft({"run", kStories, "-p", "Once", "-n", "5", "--raw", "--json"}, options), 3, "io_error",
                 "standard output is closed");
  EXPECT_TRUE(nlohmann::json::parse(std::ifstream(path)).is_array());
}

TEST(ClosedErrors, LoseNoAnswerAndAreNotTakenByATrace) {
  const TempFolder folder;
  const std::string path = folder.path("trace.json");
  const Result result = run_weft(kAnswer, {.environment = {"WEFT_TRACE=" + path}, .closed = {2}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, run_weft(kAnswer).out);
  EXPECT_GT(nlohmann::json::parse(std::ifstream(path)).size(), 5u);
}

TEST(FullOutput, IsAnErrorOfEveryVerb) {
  for (const Arguments& arguments : {kAnswer,
                                     Arguments{"run", kStories, "-p", "Once", "--raw", "--json"},
                                     {"eval", kStories, "-f", WEFT_TEST_DATA "/english.txt", "-n", "500", "--top", "5"},
                                     {"tokenize", kStories, "-f", WEFT_TEST_DATA "/english.txt", "--pieces"},
                                     {"plan"},
                                     {"doctor"},
                                     {"bench", "ceilings", "--quick"},
                                     {"--help"}})
    expect_refusal(run_weft(arguments, {.out_file = "/dev/full"}), 3, "io_error", "standard output: No space left");
}

TEST(OutputThatNobodyReads, EndsTheVerbWithAnError) {
  const Result result = run_weft({"run", kStories, "-p", "", "-n", "-1", "--raw", "--json"}, {.close_out_at_line = 3});
  EXPECT_EQ(result.exit_code, 3) << result.signal;
  EXPECT_EQ(result.err, "weft: io_error: standard output: Broken pipe\n");
}

}  // namespace
}  // namespace weft::testing
