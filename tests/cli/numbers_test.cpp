// Every number of every verb is read by the same rules.
#include <gtest/gtest.h>

#include <regex>

#include "tests/cli/program.h"

namespace weft::testing {
namespace {

struct Flag {
  std::string name, kind;
};

// The flags with numbers that a verb's help lists.
std::vector<Flag> number_flags(std::vector<std::string> verb) {
  verb.push_back("--help");
  const std::string help = run_weft(verb).out;
  static const std::regex line("(--[a-z-]+) (INT|UINT|FLOAT|N,N,...|SIZE|TIME)[ =]");
  std::vector<Flag> flags;
  for (std::sregex_iterator it(help.begin(), help.end(), line), end; it != end; ++it)
    flags.push_back({(*it)[1], (*it)[2]});
  return flags;
}

class Numbers : public ::testing::Test {
 protected:
  const std::vector<std::vector<std::string>> verbs_ = {
      {"run", kStories, "-p", "x"}, {"eval", kStories, "-p", "x"}, {"plan"}, {"bench", "serve"}, {"jit", "prune"}};
  // What each flag of each verb says to such a value.
  void expect(int exit_code, const std::string& code, const std::function<std::vector<std::string>(const Flag&)>& of) {
    int flags = 0;
    for (const auto& verb : verbs_)
      for (const Flag& flag : number_flags(verb)) {
        ++flags;
        for (const std::string& value : of(flag)) {
          std::vector<std::string> arguments = verb;
          arguments.insert(arguments.end(), {flag.name, value});
          SCOPED_TRACE(verb[0] + " " + flag.name + " '" + value + "'");
          const Result result = run_weft(arguments);
          expect_refusal(result, exit_code, code, flag.name);
          EXPECT_NE(result.err.find("'" + value + "'"), std::string::npos) << result.err;
          EXPECT_NE(result.err.find("allowed are"), std::string::npos) << result.err;
        }
      }
    EXPECT_GE(flags, 25);
  }
};

TEST_F(Numbers, ThatAreMalformedAreWrongUsage) {
  expect(2, "usage", [](const Flag& flag) {
    std::vector<std::string> values = {"", "many", "5x", " 5", "0x10", "nan"};
    if (flag.kind != "FLOAT") values.push_back("1.5");
    if (flag.kind == "N,N,...") values.insert(values.end(), {"1,,2", ",1", "1,", "1,x"});
    return values;
  });
}

TEST_F(Numbers, ThatAreOutOfRangeAreBadInput) {
  expect(3, "invalid_argument", [](const Flag& flag) {
    std::vector<std::string> values = {"9999999999999999999999999", "-9999999999999999999999999"};
    if (flag.kind == "FLOAT") values = {"1e999", "-1e9"};
    if (flag.name == "--seed") values.push_back("-1");
    if (flag.kind == "SIZE") values = {"99999999999999999999", "99999999999GB", "-1"};
    if (flag.kind == "TIME") values = {"99999999999999999999", "9999999999999999d", "-1s"};
    if (flag.kind == "N,N,...") values = {"1,99999999999", "-1"};
    return values;
  });
}

TEST_F(Numbers, SayWhatIsAllowed) {
  expect_refusal(run_weft({"run", kStories, "-p", "x", "-n", "many"}), 2, "usage",
                 "-n/--num-tokens = 'many': no whole number; allowed are 1 and more, or -1 for no limit");
  expect_refusal(run_weft({"run", kStories, "-p", "x", "--seed", "-1"}), 3, "invalid_argument",
                 "--seed = '-1'; allowed are 0 to 18446744073709551615");
  expect_refusal(run_weft({"plan", "--qo", "1,,2"}), 2, "usage", "--qo = '1,,2': no whole number at place 2");
  expect_refusal(run_weft({"plan", "--window-left", "-2"}), 3, "invalid_argument", "-1 (all) and more");
  expect_refusal(run_weft({"plan", "--page-size", "0"}), 3, "invalid_argument", "1 and more");
}

TEST_F(Numbers, AtTheirLimitsAreTaken) {
  for (const char* seed : {"0", "18446744073709551615"})
    EXPECT_EQ(run_weft({"run", kStories, "-p", "x", "-n", "1", "--raw", "--seed", seed}).exit_code, 0) << seed;
  EXPECT_EQ(run_weft({"run", kStories, "-p", "x", "-n", "1", "--raw", "--top-p", "0.5", "--temp", "1e1"}).exit_code, 0);
  const auto lengths = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", "--num-workers", "2", "--json"});
    return run_weft(more).exit_code;
  };
  EXPECT_EQ(lengths({"--qo", "1", "2", "--kv", "7,8"}), 0);
  EXPECT_EQ(lengths({"--qo", "1,2", "--kv=7,8"}), 0);
  EXPECT_EQ(run_weft({"jit", "prune", "--max-bytes", "64MB", "--max-age", "30d"}).exit_code, 0);
  EXPECT_EQ(run_weft({"jit", "prune", "--max-bytes", "1 gb", "--max-age", "90m"}).exit_code, 0);
}

}  // namespace
}  // namespace weft::testing
