// Graph attention, beside its three operators one after another: SDDMM, softmax of rows, SpMM; and beside the form that
// it does not choose, of one nest over rows and loops of their own for scores, softmax and sums.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "bench/sparse/cases.h"
#include "bench/sparse/probe.h"
#include "bench/sparse/rows.h"
#include "sparse/operators/programs.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/vector_unit.h"

namespace weft::bench {
namespace {

constexpr const char* kRowSoftmax = R"(program row_softmax(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  S = buffer(I, J): fp32
  P = buffer(I, J): fp32
  Largest = temporary(I): fp32
  Sum = temporary(I): fp32
  iterate largest(I, J) "SR" as (i, j):
    init:
      Largest[i] = -inf
    Largest[i] = max(Largest[i], S[i, j])
  iterate exponentials(I, J) "SS" as (i, j):
    P[i, j] = exp(S[i, j] - Largest[i])
  iterate sums(I, J) "SR" as (i, j):
    init:
      Sum[i] = 0.0
    Sum[i] = Sum[i] + P[i, j]
  iterate quotients(I, J) "SS" as (i, j):
    P[i, j] = P[i, j] / Sum[i]
schedule:
  lower()
  compute_at(sums, quotients.i)
  compute_at(exponentials, quotients.i)
  compute_at(largest, quotients.i)
  set_scope(Largest, register)
  set_scope(Sum, register)
  parallel(quotients.i)
)";

class GraphAttention {
 public:
  GraphAttention(SparseBench& bench, const SparseCase& graph, int64_t feat)
      : bench_(bench), a_(graph), feat_(feat), ones_(graph.indices.size(), 1.f), scores_(ones_), weights_(ones_) {
    for (Workspace* tensor : {&q_, &k_, &v_, &o_}) {
      *tensor = Workspace(Device::cpu(), static_cast<size_t>(a_.rows * feat_) * sizeof(float));
      const std::vector<float> numbers = random_floats(size_t{1} << 16, 5);
      for (int64_t i = 0; i < a_.rows * feat_; ++i)
        static_cast<float*>(tensor->data())[i] = numbers[static_cast<size_t>(i) % numbers.size()];
    }
  }

  void measure(bool same) {
    const std::string name = fmt::format("graph attention {} F{} {}", a_.name, feat_, same ? "K = V" : "K != V");
    if (!wants(bench_, name)) return;
    const Workspace& v = same ? k_ : v_;
    const double flops = 4. * static_cast<double>(a_.nnz() * feat_);
    const auto fused = [&] {
      sparse::graph_attention(a_.structure, rows(q_), rows(k_), rows(v), rows(o_), 1, bench_.stream);
    };
    const auto unfused = [&] {
      sparse::sddmm(a_.structure, elements(ones_), rows(q_), rows(k_), elements(scores_), {}, bench_.stream);
      softmax_.run(
          {.structures = {{"J", a_.structure}}, .buffers = {{"S", elements(scores_)}, {"P", elements(weights_)}}},
          bench_.stream);
      sparse::spmm(a_.structure, elements(weights_), rows(v), rows(o_), {}, bench_.stream);
    };
    unfused();
    const bool is_apart = sparse::attention_runs_apart(a_.rows * feat_ * 4, same);
    const sparse::Operator other = sparse::kept_operator(sparse::attention_program(
        feat_, feat_, DType::fp32, sparse::vector_unit(current_isa()), {.same = same, .is_apart = !is_apart}));
    const auto other_form = [&] {
      other.run({.structures = {{"J", a_.structure}},
                 .buffers = {{"Q", rows(q_)}, {"Keys", rows(k_)}, {"V", rows(v)}, {"O", rows(o_)}},
                 .reals = {{"scale", 1.}}},
                bench_.stream);
    };
    other_form();
    const Probe gather = probe_gather(bench_.team, a_, static_cast<const float*>(k_.data()), feat_);
    const std::vector<Probe> probes = {gather, [&] { return flops / seconds_of(unfused); },
                                       [&] { return flops / seconds_of(other_form); }};
    const TimedBeside timed =
        time_beside(fused, probes, bench_.options.quick ? 3 : 5, bench_.options.quick ? 0.05 : 0.3);
    const double rate = flops / timed.median_s;
    // A row that is key and value comes once.
    const double ceiling = timed.ceilings[0] * (same ? 2 : 1);
    const auto add = [&](const char* metric, double value, const char* unit, double most = 0) {
      bench_.report.add(
          {.bench = "sparse", .name = name, .metric = metric, .value = value, .unit = unit, .ceiling = most});
    };
    add("rate", rate / 1e9, "GFLOP/s", ceiling / 1e9);
    add("over unfused", rate / timed.ceilings[1], "x");
    add(is_apart ? "over one nest" : "over loops of their own", rate / timed.ceilings[2], "x");
  }

 private:
  TensorView rows(const Workspace& w) const { return {w.data(), DType::fp32, {a_.rows, feat_}}; }
  static TensorView elements(const std::vector<float>& list) {
    return {list.data(), DType::fp32, {static_cast<int64_t>(list.size())}};
  }

  SparseBench& bench_;
  const SparseCase& a_;
  int64_t feat_;
  std::vector<float> ones_, scores_, weights_;
  Workspace q_, k_, v_, o_;
  sparse::Operator softmax_ = sparse::compile(sparse::parse(kRowSoftmax));
};

}  // namespace

void measure_graph_attention(SparseBench& bench) {
  if (!may_want(bench, "graph attention")) return;
  bench.report.note(
      "graph attention: ceiling the rows of keys and values loaded in the same order, those that are both once");
  // Of 64 features keys of 0.7 MB, of 5, and of 100, more than caches hold.
  std::vector<SparseCase> graphs;
  graphs.push_back(power_law_case(2708, 10556));
  graphs.push_back(power_law_case(20000, 300000));
  if (!bench.options.quick) graphs.push_back(power_law_case(400000, 6000000));
  for (const SparseCase& graph : graphs)
    for (const int64_t feat : bench.options.quick ? std::vector<int64_t>{64} : sparse_feats()) {
      GraphAttention attention(bench, graph, feat);
      for (const bool same : {true, false}) attention.measure(same);
    }
}

}  // namespace weft::bench
