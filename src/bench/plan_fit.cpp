// `weft bench plan --fit`: the constants of the cost model, fitted to the time of work items of each tile class. Those
// in use are in cpu_traits (attention/cpu/traits.cpp); who changes a kernel compares and copies.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "attention/cpu/traits.h"
#include "attention/kernel.h"
#include "attention/plan/planner.h"
#include "base/check.h"
#include "bench/batch.h"
#include "bench/measure.h"
#include "bench/timing.h"

namespace weft::bench {
namespace {

using attention::TileKind;

// cost = row * rows + token * tokens + row_token * rows * tokens + item, in nanoseconds.
constexpr int kTerms = 4;
constexpr const char* kNames[kTerms] = {"row", "token", "row_token", "item"};
using Terms = std::array<double, kTerms>;

struct Sample {
  double rows, tokens, ns;
  Terms terms() const { return {rows, tokens, rows * tokens, 1}; }
};

double cost_of(const Terms& constants, const Sample& sample) {
  double cost = 0;
  for (int t = 0; t < kTerms; ++t) cost += constants[t] * sample.terms()[t];
  return cost;
}

// Least squares of relative errors over the terms in use, by the normal equations; the others are 0.
Terms solve(const std::vector<Sample>& samples, const std::array<bool, kTerms>& used) {
  double a[kTerms][kTerms + 1] = {};
  for (const Sample& sample : samples)
    for (int i = 0; i < kTerms; ++i) {
      for (int j = 0; j < kTerms; ++j) a[i][j] += sample.terms()[i] * sample.terms()[j] / (sample.ns * sample.ns);
      a[i][kTerms] += sample.terms()[i] / sample.ns;
    }
  for (int i = 0; i < kTerms; ++i)
    if (!used[i]) {
      for (int j = 0; j < kTerms; ++j) a[i][j] = a[j][i] = i == j;
      a[i][kTerms] = 0;
    }
  for (int pivot = 0; pivot < kTerms; ++pivot) {  // symmetric and positive definite: no exchange of rows
    for (int i = 0; i < kTerms; ++i) {
      if (i == pivot) continue;
      const double factor = a[i][pivot] / a[pivot][pivot];
      for (int j = pivot; j <= kTerms; ++j) a[i][j] -= factor * a[pivot][j];
    }
  }
  Terms constants;
  for (int i = 0; i < kTerms; ++i) constants[i] = a[i][kTerms] / a[i][i];
  return constants;
}

// The same with no constant below zero: the most negative leaves until none is.
Terms fit(const std::vector<Sample>& samples) {
  std::array<bool, kTerms> used;
  used.fill(true);
  for (;;) {
    const Terms constants = solve(samples, used);
    int worst = 0;
    for (int t = 1; t < kTerms; ++t)
      if (constants[t] < constants[worst]) worst = t;
    if (constants[worst] >= 0) return constants;
    used[worst] = false;
  }
}

// One worker computes equal items, each a whole request over one KV head.
Sample time_item(const AttentionKernel& kernel, TileKind kind, int rows, int tokens, WorkerTeam& team, bool quick) {
  constexpr int kItems = 16;
  Batch batch(kernel.spec(), {1, 1, kernel.spec().head_dim_qk}, rows, std::vector<int>(kItems, tokens), 16, 1);
  batch.input.mode = PlanMode::no_split;
  const Plan plan = kernel.plan(batch.input);
  const auto* units = section<const attention::Unit>(plan.impl().bytes.data(), plan.impl().header().units);
  ensure(plan.num_items() == kItems && units[0].tile_kind == kind, "{} rows were planned as {}, not {}", rows,
         attention::to_string(units[0].tile_kind), attention::to_string(kind));
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  plan.upload(workspace);
  const Timing timing =
      time_runs([&] { kernel.run(workspace, batch.tensors, Stream::cpu(team)); }, quick ? 3 : 15, quick ? 0.005 : 0.05);
  return {static_cast<double>(rows), static_cast<double>(tokens), timing.median_s * 1e9 / kItems};
}

void fit_class(const AttentionKernel& kernel, const TileClass& in_use, bool quick, WorkerTeam& team,
               BenchReport& report) {
  int least = 1;
  for (const TileClass& smaller : kernel.impl().traits.classes)
    if (smaller.rows < in_use.rows) least = std::max(least, smaller.rows + 1);
  std::vector<Sample> samples;
  for (const int rows : {least, (least + in_use.rows) / 2, in_use.rows})
    for (const int tokens : {64, 256, 1024})
      samples.push_back(time_item(kernel, in_use.kind, rows, tokens, team, quick));
  const Terms fitted = fit(samples), old = {in_use.row, in_use.token, in_use.row_token, in_use.item};
  const std::string name =
      fmt::format("cost of {} to {} rows, {}, head_dim {}, {}", least, in_use.rows, attention::to_string(in_use.kind),
                  kernel.spec().head_dim_qk, to_string(kernel.spec().kv_dtype));
  for (int t = 0; t < kTerms; ++t) report.add({"plan", name, kNames[t], fitted[t], "ns", old[t]});
  const auto spread = [&](const Terms& constants) {
    double sum = 0;
    for (const Sample& s : samples) sum += std::pow(cost_of(constants, s) / s.ns - 1, 2);
    return std::sqrt(sum / static_cast<double>(samples.size()));
  };
  report.add({"plan", name, "error of the fit", spread(fitted), "", spread(old)});
}

}  // namespace

void measure_plan_fit(const BenchOptions& options, BenchReport& report) {
  report.note("plan --fit: constants of an item's cost beside those in use; KV in cache where 16 items fit");
  WorkerTeam team(1);
  for (const int head_dim : {64, 128})
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      if (options.quick && (head_dim != 128 || dtype != DType::bf16)) continue;
      const AttentionKernel kernel = build(make_spec(dtype, head_dim, Mask::none), Device::cpu());
      const std::vector<TileClass>& classes = kernel.impl().traits.classes;
      // Where two classes have as many rows, one_tile serves these items; both have its constants.
      for (const TileClass& c : classes)
        if (c.one_tile || std::none_of(classes.begin(), classes.end(),
                                       [&](const TileClass& other) { return other.one_tile && other.rows == c.rows; }))
          fit_class(kernel, c, options.quick, team, report);
    }
}

}  // namespace weft::bench
