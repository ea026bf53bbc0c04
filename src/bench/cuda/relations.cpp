#include "bench/cuda/relations.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <vector>

#include "bench/cuda/placed.h"
#include "bench/measure.h"
#include "bench/sparse/cases.h"
#include "bench/sparse/edges.h"
#include "bench/stop.h"
#include "sparse/formats/structure.h"
#include "sparse/operators/relation_groups.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft::bench {
namespace {

// Edges, made when a row of theirs is wanted, and how many features or channels go in and out.
struct RelationCase {
  std::string name;
  std::function<sparse::CooTensor()> edges;
  std::vector<int64_t> feats;
};

// So many of a graph, which have relations in common and no node.
sparse::CooTensor side_by_side(const sparse::CooTensor& edges, int32_t copies) {
  sparse::CooTensor many{.extents = {edges.extents[0], edges.extents[1] * copies, edges.extents[2] * copies},
                         .coordinates = {{}, {}, {}}};
  for (int32_t copy = 0; copy < copies; ++copy)
    for (size_t d = 0; d < 3; ++d)
      for (const int32_t at : edges.coordinates[d])
        many.coordinates[d].push_back(d == 0 ? at : at + copy * static_cast<int32_t>(edges.extents[d]));
  return many;
}

// Those of --data, where names of convolutions begin so; else made ones.
std::vector<RelationCase> cases_of(const BenchOptions& options) {
  const std::vector<int64_t> layers = {32}, channels = {16, 64, 256};
  if (options.quick)
    return {{"rgcn few edges", [] { return typed_graph(500, 5, 2000).edges; }, layers},
            {"convolution 500 voxels", [] { return sparse::kernel_map(hills(500)).edges; }, {16}}};
  std::vector<RelationCase> cases;
  for (TypedGraph& graph : typed_graphs_of(options)) {
    const bool is_convolution = graph.name.starts_with("convolution");
    cases.push_back({is_convolution ? graph.name : "rgcn " + graph.name,
                     [edges = std::move(graph.edges)] { return edges; }, is_convolution ? channels : layers});
  }
  if (!options.data.empty()) return cases;
  cases.push_back({"rgcn aifb-like-x32", [] { return side_by_side(typed_graph(7262, 45, 48810).edges, 32); }, layers});
  cases.push_back({"convolution-80k", [] { return sparse::kernel_map(hills(80000)).edges; }, channels});
  return cases;
}

// Products that nobody does without: one for each relation and row, or relation and column.
int64_t num_products(const sparse::CooTensor& edges) {
  const auto pairs_with = [&](size_t dimension) {
    std::vector<int64_t> pairs;
    for (size_t e = 0; e < edges.coordinates[0].size(); ++e)
      pairs.push_back(edges.coordinates[0][e] * edges.extents[dimension] + edges.coordinates[dimension][e]);
    std::sort(pairs.begin(), pairs.end());
    return std::unique(pairs.begin(), pairs.end()) - pairs.begin();
  };
  return std::min(pairs_with(1), pairs_with(2));
}

class RelationRows {
 public:
  RelationRows(CardBench& bench, const sparse::CooTensor& edges, int64_t feat, DType dtype)
      : bench_(bench),
        edges_(edges),
        feat_(feat),
        dtype_(dtype),
        x_(numbers(edges_.extents[2] * feat, 1)),
        w_(numbers(edges_.extents[0] * feat * feat, 2)),
        y_(bench.device(), static_cast<size_t>(edges_.extents[1] * feat * element_bytes())) {}

  void add_to(BenchReport& report, const std::string& name) {
    stop_if_asked();
    const sparse::Structure structure = sparse::relational_from_coo(edges_).structure;
    const std::vector<int32_t>& columns = structure.data()->levels.back().indices;
    const Workspace indices = placed(bench_, columns);
    const CardBench::Gather gather{.indices = static_cast<const int*>(indices.data()),
                                   .rows = x_.data(),
                                   .count = static_cast<int64_t>(columns.size()),
                                   .row_bytes = static_cast<int>(feat_ * element_bytes())};
    const auto run = [&](int) {
      sparse::rgms(structure, {}, view(x_, {edges_.extents[2], feat_}), view(w_, {edges_.extents[0], feat_, feat_}),
                   view(y_, {edges_.extents[1], feat_}), bench_.stream());
    };
    const auto [seconds, gathering] = bench_.time_in_turns({kCallsOfGraph, run}, bench_.gathers(gather, kCallsOfGraph));
    const double products = static_cast<double>(num_products(edges_));
    const double flops = 2. * products * static_cast<double>(feat_ * feat_);
    const double gathered = static_cast<double>(gather.count * gather.row_bytes);
    const auto add = [&](const char* metric, double value, const char* unit, double ceiling = 0) {
      report.add({.bench = "sparse", .name = name, .metric = metric, .value = value, .unit = unit, .ceiling = ceiling});
    };
    add("rate", flops / seconds / 1e9, "GFLOP/s", product_rate(products) / 1e9);
    add("bandwidth of gathered rows", gathered / seconds / 1e9, "GB/s", gathered / gathering / 1e9);
    add("time", seconds * 1e6, "us");
    add("memory beside tensors", static_cast<double>(sparse::bytes_on_cards(structure)) / 1e6, "MB");
  }

 private:
  int64_t element_bytes() const { return bits_of(dtype_) / 8; }
  TensorView view(const Workspace& memory, std::vector<int64_t> shape) const {
    return {memory.data(), dtype_, shape, bench_.device()};
  }
  Workspace numbers(int64_t count, uint64_t seed) const {
    const std::vector<float> values = random_floats(static_cast<size_t>(count), seed);
    if (dtype_ == DType::fp32) return placed(bench_, values);
    std::vector<uint16_t> halves;
    for (const float value : values) halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    return placed(bench_, halves);
  }
  // Operations a second of as many products of rows as one large product has: of fp32 by cuBLASLt, 0 where that is not
  // there; of bf16 of the tensor cores.
  double product_rate(double products) {
    if (dtype_ != DType::fp32) return bench_.product_rate();
    const int64_t most = static_cast<int64_t>(bench_.pool_bytes()) / 4 / feat_;
    const int64_t rows = std::max<int64_t>(std::min(static_cast<int64_t>(products), most), 1);
    const Workspace out(bench_.device(), static_cast<size_t>(rows * feat_) * sizeof(float));
    const TensorView a(bench_.pool(), DType::fp32, {rows, feat_}, bench_.device());
    const TensorView c(out.data(), DType::fp32, {rows, feat_}, bench_.device());
    const TensorView b(w_.data(), DType::fp32, {feat_, feat_}, bench_.device());
    try {
      const double seconds = bench_.time(kCallsOfGraph, [&](int) { matmul(a, b, c, {}, bench_.stream()); });
      return 2. * static_cast<double>(rows * feat_ * feat_) / seconds;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      return 0;
    }
  }

  CardBench& bench_;
  const sparse::CooTensor& edges_;
  int64_t feat_;
  DType dtype_;
  Workspace x_, w_, y_;
};

}  // namespace

sparse::CooTensor edges_of_rgcn(const BenchOptions& options) {
  for (const RelationCase& work : cases_of(options))
    if (work.name.starts_with("rgcn")) return work.edges();
  return side_by_side(typed_graph(7262, 45, 48810).edges, 32);
}

void measure_relations(CardBench& bench, const BenchOptions& options, BenchReport& report) {
  const auto wanted = [&](const std::string& name) { return name.find(options.only) != std::string::npos; };
  for (const RelationCase& work : cases_of(options)) {
    sparse::CooTensor edges;
    for (const int64_t feat : work.feats)
      for (const DType dtype : {DType::fp32, DType::bf16}) {
        const std::string name = fmt::format("{} F{} {}", work.name, feat, to_string(dtype));
        if (!wanted(name)) continue;
        if (edges.extents.empty()) edges = work.edges();
        RelationRows(bench, edges, feat, dtype).add_to(report, name);
      }
  }
}

}  // namespace weft::bench
