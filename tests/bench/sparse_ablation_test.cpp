// Every candidate of an ablation computes what a dense computation in fp64 does, over what it says that it has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/memory_use.h"
#include "bench/sparse/ablation.h"
#include "bench/sparse/edges.h"
#include "weft/error.h"

namespace weft::bench {
namespace {

const float* floats(const std::shared_ptr<Floats>& tensor) { return static_cast<const float*>(tensor->view.data()); }

// Rows and columns of a case's elements, in its order.
sparse::CooTensor elements_of(const SparseCase& a) {
  sparse::CooTensor elements{.extents = {a.rows, a.cols}, .coordinates = {{}, a.indices}};
  for (int64_t i = 0; i < a.rows; ++i)
    elements.coordinates[0].insert(
        elements.coordinates[0].end(),
        static_cast<size_t>(a.indptr[static_cast<size_t>(i) + 1] - a.indptr[static_cast<size_t>(i)]),
        static_cast<int32_t>(i));
  return elements;
}

std::vector<double> dense_of(const Ablation& ablation) {
  const sparse::CooTensor elements = ablation.gathers != nullptr ? elements_of(*ablation.gathers) : ablation.elements;
  const std::vector<float>* values = ablation.gathers != nullptr ? &ablation.gathers->values : ablation.values.get();
  const auto& out = ablation.out->view;
  const size_t rank = elements.coordinates.size(), count = elements.coordinates[0].size();
  std::vector<double> want(static_cast<size_t>(out.size()), 0);
  const int64_t in = ablation.x->view.shape(1);
  const auto x = [&](int64_t row, int64_t l) { return static_cast<double>(floats(ablation.x)[row * in + l]); };
  for (size_t e = 0; e < count; ++e) {
    const int64_t i = elements.coordinates[rank - 2][e], j = elements.coordinates[rank - 1][e];
    const double value = values != nullptr ? (*values)[e] : 1;
    if (out.rank() == 1) {
      for (int64_t l = 0; l < in; ++l) want[e] += value * x(i, l) * floats(ablation.y)[j * in + l];
      continue;
    }
    const int64_t feat = out.shape(1);
    for (int64_t k = 0; k < feat; ++k) {
      double& sum = want[static_cast<size_t>(i * feat + k)];
      if (rank == 2) {
        sum += value * x(j, k);
      } else {
        const float* w = floats(ablation.y) + elements.coordinates[0][e] * in * feat;
        for (int64_t l = 0; l < in; ++l) sum += value * x(j, l) * w[l * feat + k];
      }
    }
  }
  return want;
}

// Twice: what the first run has kept is used by the second. Sums have up to some hundred terms below one.
void expect_same(const Ablation& ablation, size_t num_candidates) {
  const std::vector<double> want = dense_of(ablation);
  WorkerTeam team(2);
  EXPECT_EQ(ablation.candidates.size(), num_candidates) << ablation.name;
  EXPECT_GT(ablation.bytes, 0);
  for (const Candidate& candidate : ablation.candidates)
    for (int run = 0; run < 2; ++run) {
      float* out = static_cast<float*>(ablation.out->view.data());
      std::fill_n(out, want.size(), std::numeric_limits<float>::quiet_NaN());
      candidate.run(Stream::cpu(team));
      size_t wrong = 0;
      for (size_t i = 0; i < want.size(); ++i) wrong += std::fabs(out[i] - want[i]) <= 1e-4 ? 0 : 1;
      EXPECT_EQ(wrong, 0u) << ablation.name << ": " << candidate.name << ", run " << run;
    }
}

SparseCase small_graph() {
  sparse::Coo coo{.num_rows = 40, .num_cols = 30};
  for (int32_t i = 0; i < 40; ++i)
    for (int32_t j = 0; j < 30; ++j)
      if (i != 5 && (i == 7 || (i * 7 + j * 13) % 11 == 0)) coo.rows.push_back(i), coo.cols.push_back(j);
  return coo_case("small", coo);
}

TEST(SparseAblation, FormatsOfSpmmAgreeWithDense) {
  const SparseCase a = small_graph();
  expect_same(formats_of_spmm(a, 32, {{1, 2}, {4, 1}}), 3);
}

TEST(SparseAblation, SchedulesOfSpmmAgreeWithDense) {
  const SparseCase a = small_graph();
  expect_same(schedules_of_spmm(a, 32), 4);
}

TEST(SparseAblation, SchedulesOfSddmmAgreeWithDense) {
  const SparseCase a = small_graph();
  expect_same(schedules_of_sddmm(a, 32), 6);
}

// Structures of the sizes that their names stand for.
TEST(SparseAblation, SyntheticGraphsHaveTheSizesOfKnownOnes) {
  for (const KnownGraph& graph : known_graphs()) {
    if (graph.nodes > 20000) continue;
    const SparseCase a = synthetic_case(graph);
    EXPECT_EQ(a.rows, graph.nodes) << a.name;
    EXPECT_EQ(a.nnz(), graph.edges) << a.name;
  }
  const SparseCase even = synthetic_case({"even", 800, 80000, 8, true});
  EXPECT_EQ(even.name, "synthetic even 1/8");
  EXPECT_EQ(even.rows, 100);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(even.indptr[i + 1] - even.indptr[i], 100);
  const TypedGraph typed = synthetic_graph(known_typed_graphs()[0]);
  EXPECT_EQ(typed.edges.extents, (std::vector<int64_t>{45, 7262, 7262}));
  EXPECT_EQ(typed.edges.coordinates[0].size(), 48810u);
}

TEST(SparseAblation, PhasesAndSumsAgreeWithDense) {
  const SparseCase a = small_graph();
  expect_same(joined_phases(a, 32, 2), 2);
  expect_same(atomic_sums(a, 32, 2, 1), 3);
}

TEST(SparseAblation, EmptyBlockRowsAgreeWithDense) {
  for (const double empty : {0., 0.5, 1.}) {
    const EmptyBlockRows shape{.size = 64, .block = 8, .density = 0.4, .empty = empty};
    const Ablation ablation = empty_block_rows(shape, 32);
    std::vector<char> has_some(8, 0);
    for (const int32_t row : ablation.elements.coordinates[0]) has_some[static_cast<size_t>(row / 8)] = 1;
    EXPECT_LE(std::count(has_some.begin(), has_some.end(), 1), std::llround(8 * (1 - empty)));
    EXPECT_EQ(ablation.elements.coordinates[0].empty(), empty == 1);
    expect_same(ablation, 2);
  }
}

TEST(SparseAblation, PrunedWeightsAgreeWithDense) {
  const Ablation ablation = pruned_weights({.rows = 32, .cols = 64, .density = 0.05}, 32);
  expect_same(ablation, 3);
  EXPECT_GT(ablation.candidates[0].padding, 0.9);  // of blocks
  EXPECT_GT(ablation.candidates[1].padding, ablation.candidates[2].padding);
  EXPECT_EQ(ablation.candidates[2].padding, 0);  // of CSR
}

TEST(SparseAblation, RelationsAgreeWithDense) {
  TypedGraph graph = typed_graph(50, 4, 120);
  graph.edges.extents[0] = 5;  // the last has no edge
  expect_same(relational("small", graph.edges, 32, 32), 4);
}

TEST(SparseAblation, WhatCannotBeBuiltIsRefused) {
  EXPECT_THROW(empty_block_rows({.size = 65, .block = 8}, 32), Error);
  EXPECT_THROW(empty_block_rows({.size = 64, .block = 1}, 32), Error);
  EXPECT_THROW(empty_block_rows({.size = 64, .block = 8, .density = 0}, 32), Error);
  EXPECT_THROW(empty_block_rows({.size = 64, .block = 8, .empty = 1.5}, 32), Error);
  EXPECT_THROW(pruned_weights({.rows = 30, .cols = 64}, 32), Error);
  EXPECT_THROW(pruned_weights({.rows = 32, .cols = 64, .density = 1.5}, 32), Error);
  EXPECT_THROW(relational("flat", {.extents = {2, 2}, .coordinates = {{0}, {0}}}, 32, 32), Error);
}

TEST(SparseEdges, AreWhatTheyAreNamed) {
  const TypedGraph graph = typed_graph(100, 7, 300);
  EXPECT_EQ(graph.edges.coordinates[2].size(), 300u);
  EXPECT_NO_THROW(sparse::relations_from_coo(graph.edges));  // none twice, none outside
  const auto places = hills(500);
  EXPECT_EQ(places.size(), 500u);
  const sparse::KernelMap map = sparse::kernel_map(places);
  EXPECT_GT(map.edges.coordinates[0].size(), 2 * places.size());  // neighbours stand together
}

TEST(MemoryUse, CountsWhatIsKeptAndWhatIsTakenMeanwhile) {
  std::vector<char> kept;
  const auto work = [&] {
    kept.resize(8 << 20, 1);
    std::vector<char> meanwhile(16 << 20, 1);
    EXPECT_EQ(meanwhile.back(), 1);
  };
  const std::optional<double> mb = extra_mb_of(work);
  if (!mb) GTEST_SKIP() << "the system does not count pages";
  EXPECT_GE(*mb, 20);
  EXPECT_LE(*mb, 60);
}

}  // namespace
}  // namespace weft::bench
