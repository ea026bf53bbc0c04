#include "cli/bench.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/arguments.h"
#include "cli/bench_loops.h"
#include "cli/cli.h"
#include "cli/probe.h"
#include "device/cpu/cpuid.h"
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

const BenchRow kRow{
    .bench = "attention", .name = "decode", .metric = "bandwidth", .value = 30, .unit = "GB/s", .ceiling = 40};

TEST(BenchReport, PrintsOneJsonObjectARowWithTheShareOfItsCeiling) {
  const auto lines = printed([] { BenchReport(true).add(kRow); });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(nlohmann::json::parse(lines[0]),
            nlohmann::json::parse(R"({"bench": "attention", "case": "decode", "metric": "bandwidth", "value": 30.0,
                                      "unit": "GB/s", "ceiling": 40.0, "share": 0.75})"));
}

TEST(BenchReport, HasNoShareWithoutACeiling) {
  BenchRow row = kRow;
  row.ceiling = 0;
  const auto lines = printed([&] { BenchReport(true).add(row); });
  const auto json = nlohmann::json::parse(lines.at(0));
  EXPECT_TRUE(json["ceiling"].is_null());
  EXPECT_TRUE(json["share"].is_null());
}

TEST(BenchReport, AlignsRowsUnderOneHeaderABenchmark) {
  const auto lines = printed([] {
    BenchReport report(false);
    BenchRow row = kRow;
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

TEST(TimeRuns, MeasuresAsOftenAsAsked) {
  int calls = 0;
  const Timing timing = time_runs([&] { ++calls; }, 7, 0);
  EXPECT_EQ(timing.runs, 7);
  EXPECT_EQ(calls, 8);  // one to warm up
  EXPECT_LE(timing.best_s, timing.median_s);
}

// Every loop of every ISA that this machine runs: a wrong instruction would end the program.
TEST(BenchLoops, RunOnEverySupportedIsa) {
  const auto loops_of = [](Isa isa) -> const BenchLoops& {
    switch (isa) {
      WEFT_RETURN_PER_ISA(kBenchLoops)
      default: throw InternalError("an instruction set without loops");
    }
  };
  const Workspace memory(Device::cpu(), 1 << 16);
  for (Isa isa : supported_isas()) {
    const BenchLoops& loops = loops_of(isa);
    loops.read(memory.data(), 1 << 16, 2);
    for (const BenchLoops::Work& work : {loops.fp32, loops.bf16, loops.int16, loops.int8}) {
      EXPECT_EQ(work.run == nullptr, work.ops == 0);
      if (work.run != nullptr) work.run(10);
    }
    EXPECT_NE(loops.fp32.run, nullptr);
    EXPECT_EQ(loops.int8.run != nullptr, isa >= Isa::avx512);
    EXPECT_EQ(loops.bf16.run != nullptr, isa >= Isa::avx512_bf16);
  }
}

TEST(Probes, ReadPlausibleRates) {
  WorkerTeam team(1);
  const Probe ops = probe_ops(team, Instruction::fp32_multiply_add);
  const Workspace memory = memory_to_read(team, 1 << 18);
  const auto* data = static_cast<const char*>(memory.data());
  for (const Probe& probe : {ops, probe_read(team, data, 1 << 18, 1 << 17), probe_read(team, data, 1 << 18, 1 << 18)}) {
    const double best = best_of(probe);  // a single reading may be interrupted
    EXPECT_GT(best, 1e8);
    EXPECT_LT(best, 1e13);
  }
  EXPECT_THROW(probe_read(team, data, 1 << 18, 1 << 19), InternalError);
  EXPECT_THROW(probe_read(team, data, 1 << 18, 100), InternalError);
}

TEST(Probes, AreReadBetweenTheRunsOfARow) {
  int runs = 0, read = 0;
  std::vector<int> runs_before;
  const Probe probe = [&] {
    runs_before.push_back(runs);
    return 100. + read++;
  };
  const auto work = [&] {
    ++runs;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const std::vector<Probe> probes{probe, [] { return 7.; }};
  const TimedBeside timed = time_beside(work, probes, 12, 0);
  EXPECT_EQ(runs, 13);
  EXPECT_GE(timed.median_s, 1e-3);
  EXPECT_EQ(timed.ceilings, (std::vector<double>{100. + read / 2, 7.}));
  EXPECT_EQ(runs_before.front(), 2);  // behind the one that warms up and the first, before the others
  EXPECT_TRUE(time_beside(work, {}, 1, 0).ceilings.empty());
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
  EXPECT_THROW(run_bench({"bench"}, context), UsageError);
  EXPECT_THROW(run_bench({"bench", "speed"}, context), UsageError);
  EXPECT_THROW(run_bench({"bench", "ceilings", "--threads", "-1"}, context), Error);
  EXPECT_THROW(run_bench({"bench", "model", "--precision", "exactly"}, context), UsageError);
}

}  // namespace
}  // namespace weft::cli
