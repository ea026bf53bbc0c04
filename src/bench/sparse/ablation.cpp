// `weft bench sparse --only ablation`: what each format, and each line of a schedule, is worth. All candidates of an
// ablation compute the same, each beside its ceiling, and in turns with the first one.
#include "bench/sparse/ablation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/clock.h"
#include "bench/memory_use.h"
#include "bench/probe.h"
#include "bench/sparse/edges.h"
#include "bench/sparse/probe.h"
#include "bench/sparse/rows.h"
#include "bench/stop.h"
#include "bench/timing.h"

namespace weft::bench {
namespace {

std::vector<int64_t> feats_of(const SparseBench& bench) {
  return bench.options.quick ? std::vector<int64_t>{64} : sparse_feats();
}

void add(SparseBench& bench, const std::string& name, const std::string& metric, double value, const char* unit,
         double ceiling = 0) {
  bench.report.add(
      {.bench = "sparse", .name = name, .metric = metric, .value = value, .unit = unit, .ceiling = ceiling});
}

// How many times as fast as the other one a candidate is. Each runs behind the other, and finds the caches as that left
// them.
double ratio_in_turns(SparseBench& bench, const Candidate& candidate, const Candidate& other) {
  const double for_seconds = bench.options.quick ? 0.02 : 0.2;
  std::vector<double> own_s, other_s;
  other.run(bench.stream);  // compiles
  for (const auto start = Clock::now(); own_s.size() < 3 || seconds_since(start) < for_seconds;) {
    stop_if_asked();
    own_s.push_back(seconds_of([&] { candidate.run(bench.stream); }));
    other_s.push_back(seconds_of([&] { other.run(bench.stream); }));
  }
  return median(other_s) / median(own_s);
}

// How many times as fast as the first each candidate is, by its name; rows that are not asked for are not measured.
std::map<std::string, double> measure(SparseBench& bench, const Ablation& ablation, bool with_memory = false) {
  std::map<std::string, double> ratios;
  const auto name_of = [&](const Candidate& candidate) { return ablation.name + ": " + candidate.name; };
  if (std::none_of(ablation.candidates.begin(), ablation.candidates.end(),
                   [&](const Candidate& candidate) { return wants(bench, name_of(candidate)); }))
    return ratios;
  const RowCeiling ceiling =
      ablation.gathers != nullptr
          ? RowCeiling(probe_gather(bench.team, *ablation.gathers,
                                    static_cast<const float*>((ablation.y ? ablation.y : ablation.x)->view.data()),
                                    ablation.feat))
          : RowCeiling(bench.team, Instruction::fp32_multiply_add, ablation.flops, ablation.bytes);
  const Candidate& first = ablation.candidates.front();
  for (const Candidate& candidate : ablation.candidates) {
    const std::string name = name_of(candidate);
    if (!wants(bench, name)) continue;
    const auto run = [&] { candidate.run(bench.stream); };
    const std::optional<double> extra_mb = with_memory ? extra_mb_of(run) : std::nullopt;
    const TimedBeside timed =
        time_beside(run, ceiling.probes(), bench.options.quick ? 3 : 5, bench.options.quick ? 0.02 : 0.1);
    const double rate = ablation.flops / timed.median_s;
    add(bench, name, "rate", rate / 1e9, "GFLOP/s", ceiling.of(timed) / 1e9);
    if (&candidate != &first) {
      ratios[candidate.name] = ratio_in_turns(bench, candidate, first);
      add(bench, name, "over " + first.name, ratios[candidate.name], "x");
    }
    if (candidate.padding > 0) add(bench, name, "padding of its places", 100 * candidate.padding, "%");
    if (extra_mb) add(bench, name, "peak memory beside its tensors", *extra_mb, "MB");
  }
  add(bench, ablation.name, "operations", ablation.flops / 1e6, "MFLOP");
  add(bench, ablation.name, "floor", ablation.bytes / 1e6, "MB");
  return ratios;
}

// Without and with hyb at every width of rows; at F 128 over column partitions and buckets.
void measure_formats(SparseBench& bench, const SparseCase& a, bool sweeps) {
  const Hyb usual{1, middle_k(a)};
  double log_sum = 0;
  int count = 0;
  for (const int64_t feat : feats_of(bench)) {
    std::vector<Hyb> formats = {usual};
    if (sweeps && (feat == 128 || bench.options.quick)) {
      for (const int64_t c : {2, 4, 8, 16}) formats.push_back({c, usual.k});
      for (int64_t k = std::max<int64_t>(usual.k - 1, 0); k <= usual.k + 3; ++k)
        if (k != usual.k) formats.push_back({1, k});
    }
    const std::map<std::string, double> ratios = measure(bench, formats_of_spmm(a, feat, formats));
    if (const auto found = ratios.find(usual.text()); found != ratios.end())
      log_sum += std::log(found->second), ++count;
  }
  if (count == static_cast<int>(sparse_feats().size()))
    add(bench, fmt::format("ablation formats of spmm {}: {}", a.name, usual.text()),
        "over csr, geometric mean of F 32 to 512", std::exp(log_sum / count), "x");
}

void measure_schedules(SparseBench& bench, const SparseCase& a) {
  for (const int64_t feat : feats_of(bench)) {
    measure(bench, schedules_of_spmm(a, feat));
    measure(bench, schedules_of_sddmm(a, feat));
  }
}

void measure_relations(SparseBench& bench, const TypedGraph& graph) {
  const sparse::CooTensor few{.extents = {1, 1, 1}, .coordinates = {{0}, {0}, {0}}};
  for (const int64_t feat : feats_of(bench)) {
    const Ablation ablation = relational("rgcn " + graph.name, graph.edges, feat, feat);
    // Compiling takes memory, too: once before.
    for (const Candidate& candidate : relational("", few, feat, feat).candidates) candidate.run(bench.stream);
    measure(bench, ablation, /*with_memory=*/true);
  }
}

// Products of all voxels for each offset are not what anybody does.
void measure_convolution(SparseBench& bench) {
  const int64_t voxels = bench.options.quick ? 2000 : 80000;
  const sparse::KernelMap map = sparse::kernel_map(hills(voxels));
  const std::string name = fmt::format("convolution 3x3x3, {}k voxels,", voxels / 1000);
  for (const int64_t channels :
       bench.options.quick ? std::vector<int64_t>{16} : std::vector<int64_t>{16, 32, 64, 128, 256}) {
    Ablation ablation = relational(name, map.edges, channels, channels);
    ablation.candidates.erase(ablation.candidates.begin());
    measure(bench, ablation, /*with_memory=*/true);
  }
}

}  // namespace

void measure_ablations(SparseBench& bench, const std::vector<SparseCase>& graphs,
                       const std::vector<SparseCase>& matrices) {
  if (!may_want(bench, "ablation")) return;
  bench.report.note(
      "ablations: rates of the operations that no candidate does without; ceilings as above, of weights and relations "
      "the "
      "lesser of multiply-adds in fp32 and bytes; graphs and voxels are synthetic");
  for (const SparseCase& graph : graphs) {
    const int64_t k = middle_k(graph);
    if (may_want(bench, "ablation formats")) measure_formats(bench, graph, /*sweeps=*/true);
    if (may_want(bench, "ablation schedules")) measure_schedules(bench, graph);
    for (const int64_t feat : feats_of(bench)) {
      if (may_want(bench, "ablation phases")) measure(bench, joined_phases(graph, feat, k));
      if (may_want(bench, "ablation sums")) measure(bench, atomic_sums(graph, feat, 4, k));
    }
  }
  for (const SparseCase& matrix : matrices)
    if (may_want(bench, "ablation formats")) measure_formats(bench, matrix, /*sweeps=*/false);
  const bool quick = bench.options.quick;
  for (const KnownGraph& graph : known_graphs())
    if (!quick && may_want(bench, fmt::format("ablation formats of spmm synthetic {}", graph.name)))
      measure_formats(bench, synthetic_case(graph), /*sweeps=*/false);
  for (const int64_t feat : feats_of(bench)) {
    if (may_want(bench, "ablation empty rows of blocks"))
      for (const double empty : {0., 0.25, 0.5, 0.75, 0.9})
        measure(bench, empty_block_rows({.size = quick ? 512 : 2048, .empty = empty}, feat));
    if (may_want(bench, "ablation pruned weights"))
      for (double density = quick ? 0.125 : 1. / 128; density <= (quick ? 0.125 : 0.5); density *= 2)
        measure(bench, pruned_weights({.density = density}, feat));
  }
  if (may_want(bench, "ablation rgcn")) {
    std::vector<TypedGraph> typed = typed_graphs_of(bench.options);
    typed.push_back(typed_graph(8285, 45, 29043));
    for (const TypedGraph& graph : typed) measure_relations(bench, graph);
    for (const KnownTypedGraph& graph : known_typed_graphs())
      if (!quick && may_want(bench, fmt::format("ablation rgcn synthetic {}", graph.name)))
        measure_relations(bench, synthetic_graph(graph));
  }
  if (may_want(bench, "ablation convolution")) measure_convolution(bench);
}

}  // namespace weft::bench
