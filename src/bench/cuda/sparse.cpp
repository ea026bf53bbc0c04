// `weft bench sparse --device cuda:0`: SpMM and SDDMM over generated graphs, blocks, RGMS, and training; where they are
// asked for by name, other widths (--only F64, F256, F512) and ablations, too. The ceiling of a row is a kernel that
// only loads the rows that it gathers, in turns with it; beside it, what has to move at the rate of a plain read of as
// much. Runs are nodes of a graph over the same tensors, as the layers of a model find them.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "bench/cuda/placed.h"
#include "bench/cuda/relations.h"
#include "bench/cuda/sparse_ablation.h"
#include "bench/cuda/sparse_blocks.h"
#include "bench/measure.h"
#include "bench/sparse/cases.h"
#include "bench/sparse/graphsage.h"

namespace weft::bench {
namespace {

// Tensors of one matrix and one width of rows.
struct CardTensors {
  CardTensors(CardBench& on, const SparseCase& matrix, int64_t width)
      : bench(on), a(matrix), feat(width), indices(placed(on, matrix.indices)), values(placed(on, matrix.values)) {
    x = placed(on, random_floats(static_cast<size_t>(a.rows * feat), 1));
    y = placed(on, random_floats(static_cast<size_t>(a.cols * feat), 2));
    c = Workspace(on.device(), static_cast<size_t>(a.rows * feat) * sizeof(float));
    out = Workspace(on.device(), static_cast<size_t>(a.nnz()) * sizeof(float));
  }
  TensorView rows(const Workspace& w, int64_t count) const {
    return {w.data(), DType::fp32, {count, feat}, bench.device()};
  }
  TensorView elements(const Workspace& w) const { return {w.data(), DType::fp32, {a.nnz()}, bench.device()}; }
  // Structure and values, rows that are touched, what is written.
  double floor_bytes(bool is_spmm) const {
    const auto nnz = static_cast<double>(a.nnz()), num_rows = static_cast<double>(a.rows);
    const double dense = (num_rows + static_cast<double>(a.touched_cols())) * static_cast<double>(feat) * 4;
    return nnz * 8 + (num_rows + 1) * 4 + dense + (is_spmm ? 0 : nnz * 4);
  }

  CardBench& bench;
  const SparseCase& a;
  int64_t feat;
  Workspace indices, values, x, y, c, out;
};

void add_card_rows(const CardTensors& t, const std::string& name, const std::function<void()>& call, bool is_spmm,
                   BenchReport& report) {
  CardBench& bench = t.bench;
  const double flops = 2. * static_cast<double>(t.a.nnz() * t.feat);
  const CardBench::Gather gather{.indices = static_cast<const int*>(t.indices.data()),
                                 .rows = t.y.data(),
                                 .count = t.a.nnz(),
                                 .row_bytes = static_cast<int>(t.feat * 4)};
  const CardBench::Turns turns =
      bench.time_in_turns({kCallsOfGraph, [&](int) { call(); }}, bench.gathers(gather, kCallsOfGraph));
  const double floor = t.floor_bytes(is_spmm);
  const auto add = [&](const char* metric, double value, const char* unit, double ceiling) {
    report.add({.bench = "sparse", .name = name, .metric = metric, .value = value, .unit = unit, .ceiling = ceiling});
  };
  add("rate", flops / turns.first / 1e9, "GFLOP/s", flops / turns.second / 1e9);
  add("bandwidth of the floor", floor / turns.first / 1e9, "GB/s", bench.read_rate(static_cast<size_t>(floor)) / 1e9);
}

// An epoch of training over a graph.
void add_training(CardBench& bench, const SparseCase& graph, const std::string& name, BenchReport& report) {
  const auto place = [&](const void* data, size_t bytes) {
    const auto* const begin = static_cast<const char*>(data);
    return placed(bench, std::vector<char>(begin, begin + bytes));
  };
  const sparse::VectorUnit unit = sparse::vector_unit(bench.device());
  SageTraining training({.graph = &graph}, unit, bench.device(), bench.stream(), place);
  const double seconds = bench.time(kCallsOfGraph, [&](int) { training.run(); });
  report.add({.bench = "sparse", .name = name, .metric = "time", .value = seconds * 1e3, .unit = "ms"});
}

// Those of --data, which bench/peers/gpu_sparse.py makes; else as many nodes and edges as graphs of these names, which
// are not here.
std::vector<SparseCase> graphs_of(const BenchOptions& options) {
  if (options.quick) return {power_law_case(2000, 8000)};
  std::vector<SparseCase> graphs;
  for (const MatrixFile& file : files_of(options, {".csr"})) {
    graphs.push_back(read_case(file.path));
    graphs.back().name = file.name;
  }
  if (!options.data.empty()) return graphs;
  for (const KnownGraph& graph : known_graphs())
    if (graph.name == std::string("pubmed") || graph.name == std::string("ogbn-arxiv"))
      graphs.push_back(synthetic_case(graph));
  graphs.push_back(synthetic_case({"reddit", 232965, 114615892, 10}));
  graphs.push_back(uniform_case(100000, 15));
  return graphs;
}

}  // namespace

void measure_sparse_on_card(const BenchOptions& options, BenchReport& report) {
  CardBench bench(options.device);
  report.note(
      fmt::format("{}: {}, {} multiprocessors, fp32; nodes of a graph over the same tensors, medians; ceilings: "
                  "the same rows loaded, nothing else; a plain read of as many bytes",
                  to_string(options.device), bench.card().name(), bench.card().num_multiprocessors()));
  const std::vector<SparseCase> graphs = graphs_of(options);
  for (const SparseCase& a : graphs)
    for (const int64_t feat : {32, 128, 64, 256, 512}) {
      const bool is_asked = options.only.find(fmt::format("F{}", feat)) != options.only.npos;
      if (feat != 32 && feat != 128 && !is_asked) continue;
      const auto wanted = [&](const std::string& name) { return name.find(options.only) != name.npos; };
      const std::string spmm = fmt::format("spmm {} F{}", a.name, feat),
                        sddmm = fmt::format("sddmm {} F{}", a.name, feat);
      if (!wanted(spmm) && !wanted(sddmm)) continue;
      const CardTensors t(bench, a, feat);
      const auto run_spmm = [&] {
        sparse::spmm(a.structure, t.elements(t.values), t.rows(t.y, a.cols), t.rows(t.c, a.rows), {}, bench.stream());
      };
      const auto run_sddmm = [&] {
        sparse::sddmm(a.structure, t.elements(t.values), t.rows(t.x, a.rows), t.rows(t.y, a.cols), t.elements(t.out),
                      {}, bench.stream());
      };
      if (wanted(spmm)) add_card_rows(t, spmm, run_spmm, true, report);
      if (wanted(sddmm)) add_card_rows(t, sddmm, run_sddmm, false, report);
    }
  measure_blocks_on_card(bench, options, report);
  measure_relations(bench, options, report);
  measure_ablations_on_card(bench, graphs, options, report);
  for (const SparseCase& a : graphs) {
    const std::string name = fmt::format("graphsage epoch {}", a.name);
    const bool is_wanted = a.name.find("pubmed") != a.name.npos && name.find(options.only) != name.npos;
    if (is_wanted) add_training(bench, a, name, report);
  }
}

}  // namespace weft::bench
