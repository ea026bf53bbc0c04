#include "bench/cuda/sparse_ablation.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/cuda/placed.h"
#include "bench/cuda/relations.h"
#include "bench/measure.h"
#include "bench/sparse/ablation.h"
#include "bench/stop.h"
#include "sparse/formats/rule.h"
#include "sparse/operators/card.h"
#include "sparse/operators/programs.h"
#include "sparse/operators/relation_groups.h"
#include "sparse/tune/chosen.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft::bench {
namespace {

// Y = 0.
constexpr const char* kClear = R"(program clear(m, feat):
  M = dense_fixed(m)
  K = dense_fixed(feat)
  Y = buffer(M, K): fp32
  iterate clear(M, K) "SS" as (x, y):
    Y[x, y] = 0.0
)";

// fp32 on the card.
class Floats32 {
 public:
  Floats32(CardBench& bench, std::vector<int64_t> shape, uint64_t seed) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    memory_ = placed(bench, random_floats(static_cast<size_t>(count), seed));
    view_ = TensorView(memory_.data(), DType::fp32, std::move(shape), bench.device());
  }
  operator const TensorView&() const { return view_; }  // NOLINT: it is what operators take
  const TensorView& view() const { return view_; }
  double bytes() const { return static_cast<double>(memory_.bytes()); }

 private:
  Workspace memory_;
  TensorView view_;
};

class AblationRows {
 public:
  AblationRows(CardBench& bench, const BenchOptions& options, BenchReport& report)
      : bench_(bench), options_(options), report_(report) {}

  bool wants(const std::string& name) const { return name.find(options_.only) != name.npos; }

  // `bytes`: what it holds beside its tensors, once it ran; none: not asked.
  void add(const std::string& name, const std::function<void()>& run, const std::function<double()>& bytes = {}) {
    if (!wants(name)) return;
    stop_if_asked();
    try {
      add_measured(name, run, bytes);
    } catch (const Error& error) {  // no library for products, say
      if (error.code() != ErrorCode::unsupported) throw;
      report_.note(fmt::format("{}: {}", name, error.what()));
    }
  }

  CardBench& bench() { return bench_; }
  Stream stream() const { return bench_.stream(); }

 private:
  void add_measured(const std::string& name, const std::function<void()>& run, const std::function<double()>& bytes) {
    const auto row = [&](const char* metric, double value, const char* unit) {
      report_.add({.bench = "sparse", .name = name, .metric = metric, .value = value, .unit = unit});
    };
    row("time", bench_.time(kCallsOfGraph, [&](int) { run(); }) * 1e6, "us");
    if (bytes) row("memory beside tensors", bytes() / 1e6, "MB");
  }

  CardBench& bench_;
  const BenchOptions& options_;
  BenchReport& report_;
};

void add_formats(AblationRows& rows, const SparseCase& a, int64_t feat) {
  const std::string stem = fmt::format("ablation spmm {} F{}", a.name, feat);
  std::vector<std::string> formats = {"csr, whole rows", "csr, rows in pieces"};
  const int64_t k = sparse::default_bucket(a.nnz(), a.rows);
  for (const int64_t c : {1, 2, 4, 8, 16}) formats.push_back(fmt::format("hyb({}, {})", c, k));
  if (std::none_of(formats.begin(), formats.end(), [&](const auto& f) { return rows.wants(stem + ": " + f); })) return;
  const Device device = rows.bench().device();
  const Workspace elements = placed(rows.bench(), a.values);
  const TensorView values(elements.data(), DType::fp32, {a.nnz()}, device);
  const Floats32 b(rows.bench(), {a.cols, feat}, 2), c(rows.bench(), {a.rows, feat}, 3);
  const auto whole = [&]() -> const sparse::Operator& {
    return sparse::gather_operator(sparse::GatherOperator::spmm, {}, feat, DType::fp32, device);
  };
  rows.add(stem + ": " + formats[0], [&] {
    whole().run({.structures = {{"J", a.structure}}, .buffers = {{"A", values}, {"B", b}, {"C", c}}}, rows.stream());
  });
  for (size_t f = 1; f < formats.size(); ++f)
    rows.add(stem + ": " + formats[f], [&] {
      sparse::spmm(a.structure, values, b, c, {.format = f == 1 ? "auto" : formats[f], .values_unchanged = true},
                   rows.stream());
    });
}

// In bf16, 4,096 x 4,096 in blocks of 32, a tenth of those in rows that hold some.
void add_empty_block_rows(AblationRows& rows, const BenchOptions& options) {
  const int64_t size = options.quick ? 512 : 4096, feat = 512;
  for (const int percent : {0, 50, 90}) {
    const std::string stem = fmt::format("ablation empty rows of blocks {0} x {0}, {1} % F{2}", size, percent, feat);
    if (!rows.wants(stem + ": bsr(32)") && !rows.wants(stem + ": dbsr(32)")) continue;
    const Ablation made = empty_block_rows({.size = size, .density = .1, .empty = percent / 100.}, 1);
    const sparse::Coo coo{
        .num_rows = size, .num_cols = size, .rows = made.elements.coordinates[0], .cols = made.elements.coordinates[1]};
    const auto bf16 = [&](const Floats32& numbers, std::vector<int64_t> shape) {
      return TensorView(numbers.view().data(), DType::bf16, std::move(shape), rows.bench().device());
    };
    // Half of the bits of numbers of fp32 are numbers of bf16, any ones.
    const Floats32 b(rows.bench(), {size, feat / 2}, 2), c(rows.bench(), {size, feat / 2}, 3);
    const sparse::Converted all = sparse::bsr_from_coo(coo, 32), some = sparse::dbsr_from_coo(coo, 32);
    const auto blocks = static_cast<int64_t>(all.order.size()) / 1024;
    const Floats32 values(rows.bench(), {blocks, 32, 16}, 4);
    const TensorView a = bf16(values, {blocks, 32, 32}), x = bf16(b, {size, feat}), y = bf16(c, {size, feat});
    rows.add(stem + ": bsr(32)", [&] { sparse::block_spmm(all.structure, a, x, y, rows.stream()); });
    rows.add(stem + ": dbsr(32)", [&] { sparse::dbsr_spmm(some.structure, a, x, y, rows.stream()); });
  }
}

// A product of all nodes and a sum over edges for each relation that has some.
class RelationByRelation {
 public:
  RelationByRelation(CardBench& bench, const sparse::CooTensor& edges, const TensorView& x, const TensorView& w,
                     const TensorView& y)
      : x_(x), w_(w), y_(y), feat_(y.shape(1)), t_(bench, {x.shape(0), feat_}, 4) {
    const Device device = bench.device();
    clear_ = sparse::kept_operator({kClear, "lower()\n" + sparse::card_elements("clear", "x", "y"), {}}, device);
    add_ = sparse::kept_operator(
        {kAddOfRelation,
         "lower()\n" + sparse::card_rows({.iteration = "add", .cta = "i", .reductions = {"j"}, .feat = feat_}),
         {{"feat_out", feat_}}},
        device);
    parts_ = edges_by_relation(edges);
  }
  void run(Stream stream) const {
    clear_->run({.buffers = {{"Y", y_}}}, stream);
    for (const auto& [relation, structure] : parts_) {
      auto* const weights = static_cast<float*>(w_.data()) + relation * w_.shape(1) * w_.shape(2);
      matmul(x_, TensorView(weights, DType::fp32, {w_.shape(1), w_.shape(2)}, w_.device()), t_, {}, stream);
      add_->run({.structures = {{"J", structure}}, .buffers = {{"T", t_}, {"Y", y_}}}, stream);
    }
  }
  double bytes() const {
    double bytes = t_.bytes();
    for (const auto& [relation, structure] : parts_) bytes += static_cast<double>(sparse::bytes_on_cards(structure));
    return bytes;
  }

 private:
  TensorView x_, w_, y_;
  int64_t feat_;
  Floats32 t_;
  std::optional<sparse::Operator> clear_, add_;
  std::vector<std::pair<int64_t, sparse::Structure>> parts_;
};

void add_relations(AblationRows& rows, const BenchOptions& options) {
  const int64_t feat = 32;
  const std::string stem = fmt::format("ablation rgcn F{}", feat);
  const std::string names[] = {stem + ": a relation at a time", stem + ": tiles of rows, FMA",
                               stem + ": tiles of rows, tensor cores"};
  if (std::none_of(std::begin(names), std::end(names), [&](const auto& name) { return rows.wants(name); })) return;
  const sparse::CooTensor edges = edges_of_rgcn(options);
  const Floats32 x(rows.bench(), {edges.extents[2], feat}, 1), w(rows.bench(), {edges.extents[0], feat, feat}, 2);
  const Floats32 y(rows.bench(), {edges.extents[1], feat}, 3);
  const auto bytes_of = [](const sparse::Structure& structure) {
    return [structure] { return static_cast<double>(sparse::bytes_on_cards(structure)); };
  };
  const auto naive = std::make_shared<const RelationByRelation>(rows.bench(), edges, x, w, y);
  rows.add(
      names[0], [&] { naive->run(rows.stream()); }, [&] { return naive->bytes(); });
  for (const bool has_mma : {false, true}) {
    const sparse::Structure tiles = sparse::relational_from_coo(edges).structure;
    const auto run = [&] {
      if (has_mma) return sparse::rgms(tiles, {}, x, w, y, rows.stream());
      const int64_t tile = tiles.data()->levels[3].length;
      const sparse::VectorUnit unit = sparse::vector_unit(rows.bench().device());
      sparse::kept_operator(sparse::rgms_program(tile, false, feat, feat, DType::fp32, unit), rows.bench().device())
          .run({.structures = {{"J", tiles}}, .buffers = {{"X", x}, {"W", w}, {"Y", y}}}, rows.stream());
    };
    rows.add(names[has_mma ? 2 : 1], run, bytes_of(tiles));
  }
}

}  // namespace

void measure_ablations_on_card(CardBench& bench, std::span<const SparseCase> graphs, const BenchOptions& options,
                               BenchReport& report) {
  if (!options.only.starts_with("ablation")) return;
  AblationRows rows(bench, options, report);
  for (const SparseCase& a : graphs)
    for (const int64_t feat : {32, 128}) add_formats(rows, a, feat);
  add_empty_block_rows(rows, options);
  add_relations(rows, options);
}

}  // namespace weft::bench
