// `weft bench sampling`: tokens drawn from rows of logits, on the CPU or a card. A row's ceiling is a read of the
// logits once; on a card the logits of 64 rows stay in its cache from run to run, as they do behind the step that makes
// them.
#include <fmt/format.h>

#include <random>
#include <vector>

#include "bench/cuda/card.h"
#include "bench/measure.h"
#include "bench/probe.h"
#include "bench/timing.h"
#include "jit/cuda/runtime.h"
#include "ops/cuda/draw.h"
#include "weft/ops.h"

namespace weft::bench {
namespace {

constexpr int64_t kVocab = 128256;

struct Case {
  const char* name;
  SamplingParams params;
};
constexpr Case kCases[] = {{"top_k 50, top_p 0.9", {.top_k = 50, .top_p = 0.9f}},
                           {"top_p 0.9", {.top_p = 0.9f}},
                           {"temperature alone", {}},
                           {"greedy", {.temperature = 0.f}}};

// As models have them: most tokens far below a few.
std::vector<float> random_logits(int64_t rows) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.f, 2.5f);
  std::vector<float> logits(static_cast<size_t>(rows * kVocab));
  for (float& logit : logits) logit = normal(random);
  return logits;
}

BenchRow row_of(const Case& of, int64_t rows, double seconds, double read_rate) {
  const double bytes = static_cast<double>(rows * kVocab) * sizeof(float);
  return {.bench = "sampling",
          .name = fmt::format("{}, {} x {}", of.name, rows, kVocab),
          .metric = "bandwidth",
          .value = bytes / seconds / 1e9,
          .unit = "GB/s",
          .ceiling = read_rate / 1e9};
}

void measure_on_cpu(const BenchOptions& options, BenchReport& report) {
  WorkerTeam team(options.threads);
  report.note(fmt::format("{} threads; fp32 logits", team.num_workers()));
  for (const int64_t rows : {1, 64}) {
    std::vector<float> logits = random_logits(rows);
    const TensorView all(logits.data(), DType::fp32, {rows, kVocab});
    const size_t bytes = logits.size() * sizeof(float);
    const Probe read = probe_read(team, reinterpret_cast<const char*>(logits.data()), bytes, bytes);
    for (const Case& of : kCases) {
      const std::vector<SamplingParams> params(static_cast<size_t>(rows), of.params);
      std::vector<Philox> random(static_cast<size_t>(rows));
      const auto draw = [&] { sample_rows(all, params, random, Stream::cpu(team)); };
      const TimedBeside timed = time_beside(draw, {&read, 1}, 5, options.quick ? 0.1 : 0.5);
      report.add(row_of(of, rows, timed.median_s, timed.ceilings[0]));
    }
  }
}

void measure_on_card(const BenchOptions& options, BenchReport& report) {
  CardBench bench(options.device);
  report.note(fmt::format("{}: {}; fp32 logits; runs in a stream, one behind another, each with its upload",
                          to_string(options.device), bench.card().name()));
  constexpr int kRuns = 50;
  for (const int64_t rows : {1, 64}) {
    const std::vector<float> logits = random_logits(rows);
    const size_t bytes = logits.size() * sizeof(float);
    Workspace memory(options.device, bytes);
    auto* const there = static_cast<float*>(memory.data());
    const Bytes all{logits.data(), static_cast<int64_t>(bytes)};
    cuda::runtime().write(options.device, there, {&all, 1}, bench.stream());
    ops::CardDraws draws(options.device);
    for (const Case& of : kCases) {
      const std::vector<TokenDraw> how(static_cast<size_t>(rows), {.params = of.params});
      const auto run = [&] {
        for (int i = 0; i < kRuns; ++i) draws.run({there, kVocab, kVocab}, {}, how, bench.stream());
      };
      std::vector<double> seconds;
      run();
      for (int i = 0; i < (options.quick ? 3 : 11); ++i)
        seconds.push_back(*cuda::runtime().seconds_of(options.device, run, bench.stream()) / kRuns);
      report.add(row_of(of, rows, median(seconds), bench.read_rate(bytes)));
    }
  }
}

}  // namespace

void measure_sampling(const BenchOptions& options, BenchReport& report) {
  if (options.device == Device::cpu())
    measure_on_cpu(options, report);
  else
    measure_on_card(options, report);
}

}  // namespace weft::bench
