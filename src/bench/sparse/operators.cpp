// `weft bench sparse`: SpMM and SDDMM over matrices that are generated, and those of --data. The ceiling of a row is a
// loop that only loads the rows that it gathers, in the same order, prefetched at the best distance, in turns with it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "bench/measure.h"
#include "bench/probe.h"
#include "bench/sparse/candidates.h"
#include "bench/sparse/cases.h"
#include "bench/sparse/probe.h"
#include "bench/sparse/rows.h"
#include "bench/timing.h"

namespace weft::bench {
namespace {

// Tensors of one matrix and one width of rows, in huge pages where there are some.
struct Tensors {
  Tensors(const SparseCase& matrix, int64_t width) : a(matrix), feat(width) {
    const auto fill = [](const Workspace& to, uint64_t seed) {
      const std::vector<float> block = random_floats(size_t{1} << 16, seed);
      const size_t count = to.bytes() / sizeof(float);
      for (size_t i = 0; i < count; ++i) static_cast<float*>(to.data())[i] = block[i % block.size()];
    };
    for (const auto& [tensor, rows] : {std::pair{&x, a.rows}, {&y, a.cols}, {&c, a.rows}}) {
      *tensor = Workspace(Device::cpu(), static_cast<size_t>(std::max<int64_t>(rows, 1) * feat) * sizeof(float));
      fill(*tensor, static_cast<uint64_t>(rows));
    }
    out = Workspace(Device::cpu(), std::max<size_t>(a.indices.size(), 1) * sizeof(float));
  }
  static float* floats(const Workspace& w) { return static_cast<float*>(w.data()); }
  TensorView view(const Workspace& w, int64_t rows) const { return {w.data(), DType::fp32, {rows, feat}}; }
  TensorView values() const { return {const_cast<float*>(a.values.data()), DType::fp32, {a.nnz()}}; }

  const SparseCase& a;
  int64_t feat;
  Workspace x, y, c, out;  // [rows, feat], [cols, feat], [rows, feat], [nnz]
};

// Bytes that have to move: structure and values, the rows that are touched, what is written.
double floor_bytes(const Tensors& t, bool is_spmm) {
  const auto nnz = static_cast<double>(t.a.nnz()), rows = static_cast<double>(t.a.rows);
  const double dense = (rows + static_cast<double>(t.a.touched_cols())) * static_cast<double>(t.feat) * 4;
  return nnz * 8 + (rows + 1) * 4 + dense + (is_spmm ? 0 : nnz * 4);
}

// Returns the seconds of a call.
double add_rows(SparseBench& bench, const std::string& name, const Tensors& t, const std::function<void()>& work,
                const Probe& gather, const Probe& plain, double floor) {
  const std::array<Probe, 2> probes = {gather, plain};
  const TimedBeside timed = time_beside(work, probes, bench.options.quick ? 3 : 9, bench.options.quick ? 0.05 : 0.3);
  const double rate = 2. * static_cast<double>(t.a.nnz() * t.feat) / timed.median_s;
  const auto add = [&](const char* metric, double value, const char* unit, double ceiling = 0) {
    bench.report.add(
        {.bench = "sparse", .name = name, .metric = metric, .value = value, .unit = unit, .ceiling = ceiling});
  };
  add("rate", rate / 1e9, "GFLOP/s", timed.ceilings[0] / 1e9);
  add("over plain loop", rate / timed.ceilings[1], "x");
  add("floor", floor / 1e6, "MB");
  return timed.median_s;
}

void measure_spmm(SparseBench& bench, const Tensors& t, const std::vector<std::string>& formats) {
  const Probe gather = probe_gather(bench.team, t.a, Tensors::floats(t.y), t.feat);
  const Probe plain = probe_plain_spmm(bench.team, t.a, Tensors::floats(t.y), Tensors::floats(t.c), t.feat);
  double plain_s = 0;  // of a call in the chosen form
  for (const std::string& format : formats) {
    const std::string name = fmt::format("spmm {} F{} {}", t.a.name, t.feat, format);
    if (!wants(bench, name)) continue;
    const auto run = [&] {
      sparse::spmm(t.a.structure, t.values(), t.view(t.y, t.a.cols), t.view(t.c, t.a.rows),
                   {.format = format, .values_unchanged = true}, bench.stream);
    };
    run();  // compiles
    const double call_s = add_rows(bench, name, t, run, gather, plain, floor_bytes(t, true));
    if (format == formats.front()) {
      plain_s = call_s;
      continue;
    }
    const auto add = [&](const char* metric, double value, const char* unit) {
      bench.report.add({.bench = "sparse", .name = name, .metric = metric, .value = value, .unit = unit});
    };
    const double copy_s = Conversion(format).copy_seconds(t.a, bench.stream);
    add("values copied in", copy_s * 1e3, "ms");
    // Infinite where a call never earns it back: then the row is left out.
    if (plain_s > call_s) add("calls to break even", copy_s / (plain_s - call_s), "calls");
  }
}

void measure_sddmm(SparseBench& bench, const Tensors& t) {
  const std::string name = fmt::format("sddmm {} F{}", t.a.name, t.feat);
  if (!wants(bench, name)) return;
  const Probe plain =
      probe_plain_sddmm(bench.team, t.a, Tensors::floats(t.x), Tensors::floats(t.y), Tensors::floats(t.out), t.feat);
  const auto run = [&] {
    sparse::sddmm(t.a.structure, t.values(), t.view(t.x, t.a.rows), t.view(t.y, t.a.cols),
                  {t.out.data(), DType::fp32, {t.a.nnz()}}, {}, bench.stream);
  };
  add_rows(bench, name, t, run, probe_gather(bench.team, t.a, Tensors::floats(t.y), t.feat), plain,
           floor_bytes(t, false));
}

}  // namespace

bool wants(const SparseBench& bench, const std::string& name) {
  return name.find(bench.options.only) != std::string::npos;
}

bool may_want(const SparseBench& bench, const std::string& begin) {
  return wants(bench, begin) || bench.options.only.find(begin) != std::string::npos;
}

std::vector<int64_t> sparse_feats() { return {32, 64, 128, 256, 512}; }

RowCeiling::RowCeiling(WorkerTeam& team, Instruction instruction, double flops, double bytes)
    : memory_(memory_to_read(team, std::max<size_t>(static_cast<size_t>(bytes), size_t{1} << 20))),
      probes_{arithmetic_of(team, instruction).ops,
              probe_read(team, static_cast<const char*>(memory_.data()), memory_.bytes(), memory_.bytes())},
      flops_per_byte_(flops / bytes) {}

double RowCeiling::of(const TimedBeside& timed) const {
  return probes_.size() == 1 ? timed.ceilings[0] : std::min(timed.ceilings[0], flops_per_byte_ * timed.ceilings[1]);
}

void measure_sparse(const BenchOptions& options, BenchReport& report) {
  if (options.device != Device::cpu()) return measure_sparse_on_card(options, report);
  WorkerTeam team(options.threads);
  SparseBench bench{options, report, team};
  report.note(
      fmt::format("{} threads, fp32; ceiling: the same rows loaded in the same order, nothing else; plain loop: nested "
                  "loops over CSR by the compiler, workers with equal shares of the elements",
                  team.num_workers()));
  const auto measure = [&](const SparseCase& a, const std::vector<std::string>& formats) {
    if (!may_want(bench, "spmm " + a.name) && !may_want(bench, "sddmm " + a.name) && !may_want(bench, a.name)) return;
    for (const int64_t feat : options.quick ? std::vector<int64_t>{64} : sparse_feats()) {
      const Tensors tensors(a, feat);
      measure_spmm(bench, tensors, formats);
      measure_sddmm(bench, tensors);
    }
  };
  std::vector<SparseCase> graphs;
  graphs.push_back(uniform_case(32768, 16));
  graphs.push_back(power_law_case(100000, options.quick ? 300000 : 1500000));
  std::vector<SparseCase> matrices;
  for (const MatrixFile& file : matrix_files_of(options)) matrices.push_back(file_case(options, file));
  for (const SparseCase& graph : graphs) measure(graph, {"auto", "hyb(1, 4)"});
  if (!options.quick) measure(uniform_case(262144, 16), {"auto"});
  measure_graph_attention(bench);
  measure_blocks(bench);
  for (const SparseCase& a : matrices) measure(a, {"auto"});
  measure_ablations(bench, graphs, matrices);
}

}  // namespace weft::bench
