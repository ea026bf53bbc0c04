#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments.h"
#include "cli/bench_report.h"
#include "cli/cli.h"
#include "weft/error.h"

namespace weft::cli {
namespace {

// What the call prints on stdout, line by line.
template <class Call>
std::vector<std::string> printed(Call&& call) {
  testing::internal::CaptureStdout();
  call();
  std::istringstream in(testing::internal::GetCapturedStdout());
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

const bench::BenchRow kRow{
    .bench = "attention", .name = "decode", .metric = "bandwidth", .value = 30, .unit = "GB/s", .ceiling = 40};

TEST(PrintedReport, PrintsOneJsonObjectARowWithTheShareOfItsCeiling) {
  const auto lines = printed([] { PrintedReport(true).add(kRow); });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(nlohmann::json::parse(lines[0]),
            nlohmann::json::parse(R"({"bench": "attention", "case": "decode", "metric": "bandwidth", "value": 30.0,
                                      "unit": "GB/s", "ceiling": 40.0, "share": 0.75})"));
}

TEST(PrintedReport, HasNoShareWithoutACeiling) {
  bench::BenchRow row = kRow;
  row.ceiling = 0;
  const auto lines = printed([&] { PrintedReport(true).add(row); });
  const auto json = nlohmann::json::parse(lines.at(0));
  EXPECT_TRUE(json["ceiling"].is_null());
  EXPECT_TRUE(json["share"].is_null());
}

TEST(PrintedReport, AlignsRowsUnderOneHeaderABenchmark) {
  const auto lines = printed([] {
    PrintedReport report(false);
    bench::BenchRow row = kRow;
    report.note("a machine");
    report.add(row);
    row.value = 1234.5678;
    report.add(row);
    row.bench = "gemm";
    report.add(row);
  });
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], "# a machine");
  EXPECT_TRUE(lines[1].starts_with("attention"));
  EXPECT_TRUE(lines[4].starts_with("gemm"));
  EXPECT_EQ(lines[2].find("GB/s"), lines[3].find("GB/s"));
  EXPECT_EQ(lines[1].find("unit"), lines[2].find("GB/s"));
  EXPECT_NE(lines[2].find("0.750"), std::string::npos);
  EXPECT_NE(lines[3].find("1235"), std::string::npos);
}

int run_bench(const std::vector<std::string>& arguments, Context& context) {
  Program program("A test", "weft 0", "");
  add_bench(program, context);
  EXPECT_EQ(program.run(arguments, context.json), 0);
  return context.exit_code;
}

TEST(BenchVerb, PrintsTheMachineAndEveryCeiling) {
  Context context;
  const auto lines = printed([&] {
    EXPECT_EQ(run_bench({"bench", "ceilings", "--quick", "--threads", "1", "--json"}, context), kDone);
  });
  std::vector<std::string> cases;
  for (const std::string& line : lines) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("note")) continue;
    EXPECT_EQ(json["bench"], "ceilings");
    EXPECT_GT(json["value"].get<double>(), 0);
    cases.push_back(json["case"].get<std::string>().substr(0, 7));
  }
  EXPECT_TRUE(nlohmann::json::parse(lines.at(0)).contains("note"));
  ASSERT_GE(cases.size(), 4u);
  EXPECT_EQ(cases[0], "read L2");
  EXPECT_EQ(cases[1], "read L3");
  EXPECT_EQ(cases[2], "read DR");
  EXPECT_EQ(cases[3], "fp32 mu");
}

TEST(BenchVerb, RefusesWhatItDoesNotKnow) {
  Context context;
  const auto refusal = [&](const std::vector<std::string>& arguments) -> std::string {
    try {
      run_bench(arguments, context);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "taken";
  };
  EXPECT_EQ(refusal({"bench"}).find("a verb is missing; allowed are ceilings, attention"), 0u) << refusal({"bench"});
  EXPECT_EQ(refusal({"bench", "atention"}), "'atention' is no verb; did you mean 'attention'?");
  EXPECT_EQ(refusal({"bench", "plan", "--fitt"}), "bench plan: unknown option --fitt; did you mean --fit?");
  EXPECT_EQ(refusal({"bench", "plan", "--url", "x"}).find("bench plan: unknown option --url"), 0u);
  EXPECT_THROW(run_bench({"bench", "ceilings", "--threads", "-1"}, context), Error);
  printed([&] {
    EXPECT_EQ(refusal({"bench", "sparse-tune", "--quick", "--only", "unifrom"}),
              "--only 'unifrom': no row of sparse-tune has a name that holds it");
    EXPECT_THROW(run_bench({"bench", "sparse-tune", "--quick", "--only", "x", "--data", "/nowhere"}, context), Error);
    EXPECT_THROW(run_bench({"bench", "jit", "--only", "tiles"}, context), Error);  // a CPU has one kernel
  });
  EXPECT_THROW(run_bench({"bench", "model", "--precision", "exactly"}, context), UsageError);
  EXPECT_NE(refusal({"bench", "model", "--model", "x.gguf", "--weights", "q4_0"}).find("excludes"), std::string::npos);
  EXPECT_THROW(run_bench({"bench", "decode", "--study", "deep"}, context), UsageError);
  EXPECT_THROW(run_bench({"bench", "decode", "--quick"}, context), Error);  // no card is named
}

// Its rows would be of layered steps.
TEST(BenchVerb, RefusesFormsOfStepsThatTheCpuDoesNotHave) {
  for (const auto& [option, value] :
       {std::pair("--step", "fused"), std::pair("--step", "both"), std::pair("--step-ctas", "4")}) {
    Context context;
    std::string error;
    printed([&] {
      try {
        run_bench({"bench", "model", "--model", "x.gguf", option, value}, context);
      } catch (const Error& thrown) {
        error = thrown.what();
      }
    });
    EXPECT_NE(error.find(fmt::format("bench model {} {}: required is a card", option, value)), std::string::npos)
        << error;
  }
}

}  // namespace
}  // namespace weft::cli
