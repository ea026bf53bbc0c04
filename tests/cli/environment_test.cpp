// A WEFT_* variable with a value that is not allowed: an error of every verb, and a line of `weft doctor`.
#include <gtest/gtest.h>

#include "tests/cli/program.h"
#include "tests/support/gguf_writer.h"

namespace weft::testing {
namespace {

std::vector<std::pair<std::string, std::string>> bad_values(const TempFolder& folder) {
  const std::string file = folder.write("file", "x");
  return {{"WEFT_ISA", "sse"},
          {"WEFT_NUM_THREADS", "abc"},
          {"WEFT_NUM_THREADS", "0"},
          {"WEFT_NUM_THREADS", "1025"},
          {"WEFT_CACHE_DIR", "rel"},
          {"WEFT_CACHE_DIR", file},
          {"WEFT_CXX", "bin/g++"},
          {"WEFT_CXX", "/nowhere/g++"},
          {"WEFT_CXX", "no-such-compiler"},
          {"WEFT_CHECK", "yes"},
          {"WEFT_RECORD", file},
          {"WEFT_RECORD", file + "/calls"},
          {"WEFT_TRACE", folder.path("")},
          {"WEFT_TRACE", folder.path("none/trace.json")},
          {"WEFT_STEP_LIMIT_MS", "-1"},
          {"WEFT_STEP_LIMIT_MS", "2s"},
          {"WEFT_STEP_LIMIT_MS", "600001"},
          {"WEFT_LOG", "loud"}};
}

TEST(Environment, WithABadValueIsAnErrorOfEveryVerb) {
  const TempFolder folder;
  for (const auto& [name, value] : bad_values(folder))
    for (const std::vector<std::string>& verb : {std::vector<std::string>{"run", kStories, "-p", "x", "--threads", "1"},
                                                 {"eval", kStories, "-p", "x y"},
                                                 {"tokenize", kStories, "-p", "x"},
                                                 {"plan"},
                                                 {"jit", "list"},
                                                 {"replay", "nothing"},
                                                 {"bench", "ceilings"}})
      expect_refusal(run_weft(verb, {.environment = {name + "=" + value}}), 3, "invalid_argument",
                     "environment variable " + name + " = '" + value + "'; allowed");
}

TEST(Environment, WithoutAValueMeansTheDefault) {
  EXPECT_EQ(run_weft({"tokenize", kStories, "-p", "x"}, {.environment = {"WEFT_LOG=", "WEFT_CXX="}}).exit_code, 0);
  EXPECT_EQ(run_weft({"tokenize", kStories, "-p", "x"}, {.environment = {"WEFT_LOG=debug", "WEFT_CXX=none"}}).exit_code,
            0);
}

TEST(Environment, AtItsLimitsOrNamingWhatIsMadeLaterIsAllowed) {
  const TempFolder folder;
  for (const std::string& setting :
       {std::string("WEFT_NUM_THREADS=1024"), std::string("WEFT_NUM_THREADS=1"), std::string("WEFT_CHECK=1"),
        "WEFT_RECORD=" + folder.path("new/calls/of/today"), "WEFT_CACHE_DIR=" + folder.path("new/cache"),
        "WEFT_TRACE=" + folder.path("trace.json"), std::string("WEFT_ISA=plain")})
    EXPECT_EQ(run_weft({"tokenize", kStories, "-p", "x"}, {.environment = {setting}}).err, "") << setting;
  EXPECT_EQ(run_weft({"tokenize", kStories, "-p", "x"}, {.environment = {"WEFT_RECORD=calls"}}).err, "");
}

TEST(Environment, WithBadValuesGetsALineEachFromDoctorWhichGoesOn) {
  const TempFolder folder;
  const Result fine = run_weft({"doctor", "--json"});
  for (const auto& [name, value] : bad_values(folder)) {
    const Result result = run_weft({"doctor"}, {.environment = {name + "=" + value}});
    EXPECT_EQ(result.exit_code, 4) << name;
    EXPECT_EQ(result.err, "");
    int fails = 0;
    for (const std::string& line : result.lines())
      if (line.starts_with("FAILS")) {
        ++fails;
        EXPECT_NE(line.find(name + " = '" + value + "'"), std::string::npos) << line;
      }
    EXPECT_EQ(fails, 1) << result.out;
    EXPECT_NE(result.out.find("kernel cache"), std::string::npos);
    EXPECT_NE(result.out.find("cannot run models yet"), std::string::npos);
  }
  // A folder that others may write to is refused as a cache; the rest is examined all the same.
  const Result open = run_weft({"doctor"}, {.environment = {"WEFT_CACHE_DIR=/tmp"}});
  EXPECT_NE(open.out.find("model download"), std::string::npos) << open.out << open.err;
  const Result all =
      run_weft({"doctor", "--json"},
               {.environment = {"WEFT_LOG=loud", "WEFT_CACHE_DIR=rel", "WEFT_NUM_THREADS=zero", "WEFT_ISA=sse"}});
  EXPECT_EQ(all.exit_code, 4);
  EXPECT_EQ(all.last().at("checks").size(), fine.last().at("checks").size() + 3);  // four in place of one
  for (const auto& check : all.last().at("checks"))
    EXPECT_EQ(check.at("name") == "environment", !check.at("ok").get<bool>() && check.at("name") != "model download")
        << check;
}

}  // namespace
}  // namespace weft::testing
