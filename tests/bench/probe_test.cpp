#include "bench/probe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "bench/loops.h"
#include "device/cpu/cpuid.h"
#include "weft/error.h"

namespace weft::bench {
namespace {

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

}  // namespace
}  // namespace weft::bench
