// Programs on a card that is the host machine: what is compiled, bound, launched, captured and refused there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <set>

#include "device/cuda/graph.h"
#include "device/cuda/stream.h"
#include "loop/ranges.h"
#include "sparse/backend.h"
#include "sparse/check.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/vector_unit.h"
#include "sparse/tune/card_choice.h"
#include "sparse/tune/chosen.h"
#include "sparse/tune/results.h"
#include "tests/ops/cuda/host_card.h"
#include "tests/sparse/cuda/card_run.h"
#include "tests/sparse/own_results.h"
#include "tests/sparse/programs.h"
#include "tests/sparse/refusals.h"

namespace weft::sparse::test {
namespace {

class SparseCard : public testing::HostCard {
 protected:
  static Operator compiled(const std::string& program, const std::string& schedule,
                           const std::map<std::string, int64_t>& set = {}) {
    return compile(parse(program), schedule, Device::cuda(), {.set = set});
  }
  // SpMM of few_places() with 16 features.
  struct Spmm {
    explicit Spmm(const Operator& op)
        : matrix(few_places()),
          host(op, arguments_of(op, "J", matrix.structure(), 16), 7),
          card(op, host.arguments),
          want(interpret_operator(op, host.arguments, Stage::source).buffers.at("C")) {}
    void expect(const std::string& what) const { expect_close(card.fetch("C"), want, 2e-5, what); }
    Matrix matrix;
    RunMemory host;
    CardRun card;
    std::vector<double> want;
  };
  const Stream stream_ = Stream::cuda(nullptr);
};

// A kernel for each phase; formats that are filled on the card; threads in rows; failures, which synchronize() throws.
// Whatever else the texts say, tests/simt holds.
TEST_F(SparseCard, ComputesWhatTheInterpreterDoes) {
  const std::set<std::string> names = {"spmm_hyb", "spmm_bsr_ell", "sddmm_warps",        "sddmm_places",  "extremes",
                                       "compress", "quotients",    "sr_bcrs_tensorized", "scaled_by_ctas"};
  size_t num_run = 0;
  for (const ReadyCase& c : all_cases()) {
    if (!names.contains(c.name)) continue;
    SCOPED_TRACE(c.name);
    expect_as_interpreted(c);
    ++num_run;
  }
  EXPECT_EQ(num_run, names.size());
}

// The schedules of ready operators, whose sums lie over threads.
TEST_F(SparseCard, RunsReadyOperatorsAsTheInterpreterDoes) {
  for (const ReadyCase& c : ready_cases(vector_unit(Device::cuda()))) {
    SCOPED_TRACE(c.name);
    expect_as_interpreted(c);
  }
}

// All warps of a CTA hold sums together, and what they multiply comes by cp.async.
TEST_F(SparseCard, MultipliesByTensorCores) {
  for (const ReadyCase& c : mma_cases()) {
    SCOPED_TRACE(c.name);
    expect_as_interpreted(c);
  }
}

// A schedule is one for every device.
TEST_F(SparseCard, RunsSchedulesForTensorCoresOnTheCpuToo) {
  for (const ReadyCase& c : mma_cases()) {
    if (c.name != "block_spmm_mma_in_turn") continue;
    const Operator op = compile(parse(c.ready.text), c.ready.schedule, Device::cpu(), {.set = c.ready.set});
    RunArguments arguments = arguments_of(op, c.axis, c.structure(few_places()), 16);
    arguments.scalars.insert(c.scalars.begin(), c.scalars.end());
    const RunMemory tensors(op, arguments, 7);
    const std::vector<double> want = interpret_operator(op, tensors.arguments, Stage::source).buffers.at("C");
    op.run(tensors.arguments);
    expect_close(values_of(tensors.arguments.buffers.at("C")), want, 1. / 256, c.name);
    return;
  }
  FAIL() << "there is no such case";
}

TEST_F(SparseCard, RunsCallsWhereTheirTensorsLie) {
  // The buckets of a format are one launch, behind copies of values and init.
  std::map<std::string, int> launched;
  testing::watch_launch = [&](const std::string& symbol, const cuda::Grid&, const void*) { ++launched[symbol]; };
  expect_calls_as_on_the_cpu({12, 3}, {"hyb(1, 2)"});
  testing::watch_launch = nullptr;
  EXPECT_EQ(launched["weft_spmm_preprocess_0"], 1);
  EXPECT_EQ(launched["weft_spmm_1"], 1);
  EXPECT_EQ(launched.count("weft_spmm_2"), 0u);
}

// CTAs whose threads all have elements, and one that has fewer.
TEST_F(SparseCard, AddsUpEdgesOfWholeCtasAndOfTheRest) {
  expect_edges_as_on_the_cpu(DType::fp32, 32);
  expect_edges_as_on_the_cpu(DType::fp32, 72);
  expect_edges_as_on_the_cpu(DType::bf16, 128);
}

// In one launch, but for a row that is too long for a CTA: of that, pieces of all CTAs, and their sum.
TEST_F(SparseCard, AddsUpLongRowsInPieces) {
  std::vector<std::string> launched;
  testing::watch_launch = [&](const std::string& symbol, const cuda::Grid&, const void*) {
    launched.push_back(symbol);
  };
  expect_long_rows_as_on_the_cpu(DType::fp32, 8);
  EXPECT_EQ(launched, std::vector<std::string>(2, "weft_spmm_row_groups_0"));
  launched.clear();
  expect_long_rows_as_on_the_cpu(DType::bf16, 1024);
  EXPECT_EQ(launched.size(), 6);
  launched.clear();
  expect_long_gradients_as_on_the_cpu(8);
  testing::watch_launch = nullptr;
  EXPECT_EQ(launched, std::vector<std::string>(3, "weft_spmm_row_groups_0"));
}

// Of each relation's rows in a tile, one launch for all.
TEST_F(SparseCard, MultipliesRelationsByTensorCores) {
  std::vector<std::string> launched;
  testing::watch_launch = [&](const std::string& symbol, const cuda::Grid&, const void*) {
    launched.push_back(symbol);
  };
  expect_relations_as_computed(Edges::single, DType::fp32, 48, 32);
  expect_relations_as_computed(Edges::weighted, DType::bf16, 32, 48);
  EXPECT_EQ(launched, std::vector<std::string>(4, "weft_rgms_groups_0"));
  testing::watch_launch = nullptr;
}

// A structure of one's own may have rows of a relation without an edge; of other axes it is refused.
TEST_F(SparseCard, MultipliesRelationsOfACallersOwnStructure) {
  const std::vector<int32_t> one{0, 1}, zero{0}, three{0, 3}, reached{0, 1, 2}, of_rows{0, 2, 2, 3}, cols{1, 2, 3};
  const auto axis = [](int64_t length, const std::vector<int32_t>& indptr, const std::vector<int32_t>& indices) {
    return StoredAxis{.kind = AxisKind::sparse_variable, .length = length, .indptr = indptr, .indices = indices};
  };
  std::vector<StoredAxis> axes = {
      {.length = 1}, axis(1, one, zero), axis(1, one, zero), axis(4, three, reached), axis(5, of_rows, cols)};
  Values x = random_values(5 * 16, 1), w = random_values(16 * 16, 2), y(4 * 16);
  const TensorView rows = view(x, {5, 16}), weights = view(w, {1, 16, 16}), out = view(y, {4, 16});
  rgms(structure_of(axes), {}, rows, weights, out);
  const std::vector<double> want = doubles(y);
  std::fill(y.begin(), y.end(), NAN);
  const OnCard there_rows(rows), there_weights(weights), there(out);
  const auto run = [&] { rgms(structure_of(axes), {}, there_rows, there_weights, there, stream_); };
  run();
  there.fetch();
  expect_close(doubles(y), want, 2e-5, "two edges, none, one");
  axes[4].kind = AxisKind::dense_variable;
  axes[4].indices = {};
  EXPECT_EQ(refusal(run),
            "invalid_argument: edges: axis 4 of the structure is dense and variable, of length 5; required: sparse and "
            "variable, as relational_from_coo makes it");
}

// With values and without, where no row has two edges of a relation; where there is no edge, rows are 0.
TEST_F(SparseCard, MultipliesFewRelationsOrNone) {
  const Structure structure =
      relational_from_coo({.extents = {1, 4, 5}, .coordinates = {{0, 0, 0}, {0, 1, 3}, {4, 0, 2}}}).structure;
  const Structure none = relational_from_coo({.extents = {1, 4, 5}, .coordinates = {{}, {}, {}}}).structure;
  Values values{2, 2, 2}, x(5 * 16, 0.5), w(16 * 16, 0.25), y(4 * 16, NAN);
  const OnCard there_values(view(values, {3})), rows(view(x, {5, 16})), weights(view(w, {1, 16, 16}));
  const OnCard there(view(y, {4, 16}));
  const auto run = [&](const Structure& edges, const TensorView& elements) {
    rgms(edges, elements, rows, weights, there, stream_);
    there.fetch();
    return std::vector<float>{y[0], y[16 + 7], y[32], y[63]};
  };
  EXPECT_EQ(run(structure, there_values), (std::vector<float>{4, 4, 0, 4}));
  EXPECT_EQ(run(structure, {}), (std::vector<float>{2, 2, 0, 2}));
  EXPECT_EQ(run(none, {}), (std::vector<float>{0, 0, 0, 0}));
  Values two(2 * 16 * 16), four(4 * 16);
  const OnCard more(view(two, {2, 16, 16})), fewer(view(four, {4, 16}));
  expect_contains(refusal([&] { rgms(structure, {}, rows, more, there, stream_); }), "the structure has 1 relations",
                  "weights of two relations");
  expect_contains(refusal([&] { rgms(structure, {}, fewer, weights, there, stream_); }), "the structure has 5 columns",
                  "rows of x");
}

// Numbers of 64 bits stay so while they are on their way.
TEST_F(SparseCard, ReadsAheadInTheTypeOfTheBuffer) {
  const std::string text = replaced(kSpmmProgram, "fp32", "fp64");
  const Operator op = compiled(text,
                               "lower()\nko, ki = split(csrmm.k, 4)\nreorder(ko, csrmm.j, ki)\nvectorize(ki)\n"
                               "cache_write(ko, register)\nannotate(csrmm.j, prefetch, 4)\nbind(csrmm.i, blockIdx.x)\n",
                               {{"feat", 4}});
  const Structure structure = few_places().structure();
  std::vector<double> a(static_cast<size_t>(structure.nnz()), 1. / 3), b(16 * 4, 1. / 7), c(22 * 4);
  const auto doubles_of = [](std::vector<double>& values, std::vector<int64_t> shape) {
    return TensorView(values.data(), DType::fp64, shape);
  };
  const OnCard there_a(doubles_of(a, {structure.nnz()})), there_b(doubles_of(b, {16, 4}));
  const OnCard there_c(doubles_of(c, {22, 4}));
  op.run({.structures = {{"J", structure}}, .buffers = {{"A", there_a}, {"B", there_b}, {"C", there_c}}}, stream_);
  there_c.fetch();
  EXPECT_NEAR(c[11 * 4], 16. / 21, 1e-14);
}

TEST_F(SparseCard, LaunchesAsManyThreadsAsLoopsHaveIterations) {
  const struct {
    const char* lines;
    std::array<int, 6> grid;  // CTAs, then threads of one
  } cases[] = {
      {"parallel(csrmm.i)\n", {1, 1, 1, 64, 1, 1}},
      {"bind(csrmm.i, blockIdx.x)\nbind(csrmm.k, threadIdx.x)\n", {22, 1, 1, 32, 1, 1}},
      {"bind(csrmm.i, threadIdx.y)\nbind(csrmm.k, threadIdx.x)\n", {1, 1, 1, 16, 16, 1}},
      {"o, p = split(csrmm.i, 3)\nbind(o, blockIdx.y)\nbind(p, threadIdx.z)\nbind(csrmm.k, threadIdx.x)\n",
       {1, 8, 1, 16, 1, 4}},
      // A reduction whose extent the kernel finds.
      {"reorder(csrmm.k, csrmm.j)\nbind(csrmm.i, blockIdx.x)\nbind(csrmm.k, threadIdx.y)\nbind(csrmm.j, threadIdx.x)\n",
       {22, 1, 1, 32, 8, 1}},
  };
  for (const auto& c : cases) {
    const Operator op = compiled(kSpmmProgram, std::string("lower()\nreorder(csrmm.k, csrmm.j)\n") + c.lines);
    const Spmm spmm(op);
    std::array<int, 6> grid = {};
    testing::watch_launch = [&](const std::string&, const cuda::Grid& g, const void*) {
      grid = {g.ctas, g.ctas_y, g.ctas_z, g.threads, g.threads_y, g.threads_z};
    };
    op.run(spmm.card.arguments, stream_);
    testing::watch_launch = nullptr;
    EXPECT_EQ(grid, c.grid) << c.lines;
    spmm.expect(c.lines);
  }
}

// A launch has a CTA for each iteration, or is none.
TEST_F(SparseCard, RefusesMoreIterationsThanCtas) {
  constexpr const char* kOnes = R"(program ones(n):
  I = dense_fixed(n)
  J = dense_fixed(n)
  Y = buffer(I, J): fp32
  iterate ones(I, J) "SS" as (i, j):
    Y[i, j] = 1.0
)";
  const Operator op = compiled(kOnes, "lower()\nall = fuse(ones.i, ones.j)\nbind(all, blockIdx.x)\n");
  Values one(1);
  const OnCard there(flat(one));
  int launched = 0;
  testing::watch_launch = [&](const std::string&, const cuda::Grid&, const void*) { ++launched; };
  const TensorView many(there.view().data(), DType::fp32, {1 << 16, 1 << 16}, Device::cuda());
  EXPECT_EQ(refusal([&] {
              op.run({.buffers = {{"Y", many}}}, stream_);
            }),
            "unsupported: a loop bound to blockIdx.x has 4294967296 iterations; supported: 2147483647, or split it");
  testing::watch_launch = nullptr;
  EXPECT_EQ(launched, 0);
}

// Nests that meet in nothing are one launch, of as many CTAs as they have together; each has what it needs of a CTA.
TEST_F(SparseCard, LaunchesNestsSideBySide) {
  constexpr const char* kBeside = R"(program beside(m, n):
  I = dense_fixed(m)
  J = dense_fixed(n)
  K = dense_fixed(96)
  X = buffer(I, K): fp32
  Y = buffer(J): fp32
  Twice = buffer(J): fp32
  Sum = buffer(I): fp32
  Ones = buffer(J): fp32
  iterate twice(J) "S" as (a):
    Twice[a] = Y[a] * 2.0
  iterate sum(I, K) "SR" as (i, k):
    init:
      Sum[i] = 0.0
    Sum[i] = Sum[i] + X[i, k]
  iterate ones(J) "S" as (b):
    Ones[b] = 1.0
)";
  const Operator op = compiled(kBeside,
                               "lower()\nao, ai = split(twice.a, 96)\nbind(ao, blockIdx.x)\nbind(ai, threadIdx.x)\n"
                               "bind(sum.i, blockIdx.x)\nbind(sum.k, threadIdx.x)\n"
                               "bo, bi = split(ones.b, 96)\nbind(bo, blockIdx.x)\nbind(bi, threadIdx.x)\n");
  const RunMemory host(op, {.scalars = {{"m", 5}, {"n", 200}}}, 7);
  const CardRun card(op, host.arguments);
  std::vector<std::array<int, 2>> grids;
  testing::watch_launch = [&](const std::string&, const cuda::Grid& g, const void*) {
    grids.push_back({g.ctas, g.threads});
  };
  op.run(card.arguments, stream_);
  testing::watch_launch = nullptr;
  EXPECT_EQ(grids, (std::vector<std::array<int, 2>>{{3 + 5 + 3, 96}}));
  const loop::Memory want = interpret_operator(op, host.arguments, Stage::source);
  for (const char* output : {"Twice", "Sum", "Ones"})
    expect_close(card.fetch(output), want.buffers.at(output), 2e-5, output);
}

// A graph runs with what was there when it was captured, whatever the operator ran with since.
TEST_F(SparseCard, RunsInGraphs) {
  const Operator op = compiled(kSpmmProgram, "decompose_format(csrmm, A, ell(2), csr())\nlower()\nparallel(csrmm.i)\n");
  Spmm spmm(op);
  cuda::Card& card = cuda::Card::at(0);
  const cuda::OwnedStream own = cuda::make_stream(card);
  const Stream stream = Stream::cuda(own.get());
  const auto capture = [&] { return cuda::capture(card, own.get(), [&] { op.run(spmm.card.arguments, stream); }); };
  expect_contains(refusal(capture), "run once so before the capture", "a first run");
  op.run(spmm.card.arguments, stream);
  const cuda::Graph graph = capture();
  Spmm other(op);
  RunArguments arguments = other.card.arguments;
  arguments.values_unchanged = true;
  op.run(arguments, stream);
  other.expect("another structure after the capture");
  spmm.card.tensor("C").send();
  cuda::launch(graph, own.get());
  spmm.expect("the graph");
}

// Layers of one model may have structures of their own: an operator's graph runs with all that ran before the capture,
// however they take turns.
TEST_F(SparseCard, RunsInGraphsWithSeveralStructures) {
  const Operator op = compiled(kSpmmProgram, "decompose_format(csrmm, A, ell(2), csr())\nlower()\nparallel(csrmm.i)\n");
  Spmm first(op), second(op), third(op);
  cuda::Card& card = cuda::Card::at(0);
  const cuda::OwnedStream own = cuda::make_stream(card);
  const Stream stream = Stream::cuda(own.get());
  for (const Spmm* spmm : {&first, &second}) op.run(spmm->card.arguments, stream);
  const cuda::Graph graph = cuda::capture(card, own.get(), [&] {
    for (const Spmm* spmm : {&first, &second, &first}) op.run(spmm->card.arguments, stream);
  });
  // What graphs run with stays, however many others there are.
  for (int i = 0; i < 10; ++i) {
    const Spmm other(op);
    op.run(other.card.arguments, stream);
  }
  for (const Spmm* spmm : {&first, &second}) spmm->card.tensor("C").send();
  const cuda::Graph captured_again = cuda::capture(card, own.get(), [&] { op.run(first.card.arguments, stream); });
  cuda::launch(graph, own.get());
  first.expect("the first structure");
  second.expect("the second structure");
  expect_contains(refusal([&] { cuda::capture(card, own.get(), [&] { op.run(third.card.arguments, stream); }); }),
                  "run once so before the capture", "a structure that did not run");
  // Values that are said to be those of the last run are so where that had this structure.
  RunArguments again = first.card.arguments;
  again.values_unchanged = true;
  int preprocessed = 0;
  testing::watch_launch = [&](const std::string& symbol, const cuda::Grid&, const void*) {
    preprocessed += symbol == "weft_spmm_preprocess_0";
  };
  for (int repeat = 0; repeat < 3; ++repeat) op.run(again, stream);
  EXPECT_EQ(preprocessed, 1);
  op.run(second.card.arguments, stream);
  op.run(again, stream);
  EXPECT_EQ(preprocessed, 3);
  testing::watch_launch = nullptr;
}

// Memory of its own stays the graph's, also where a later run needs more of it.
TEST_F(SparseCard, KeepsMemoryOfGraphs) {
  constexpr const char* kShifted = R"(program shifted(n):
  I = dense_fixed(n)
  X = buffer(I): fp32
  T = temporary(I): fp32
  Y = buffer(I): fp32
  iterate twice(I) "S" as (i):
    T[i] = X[i] * 2.0
  iterate shifted(I) "S" as (i) where i > 0:
    Y[i] = T[i - 1] + 1.0
)";
  const Operator op = compiled(kShifted, "lower()\nparallel(twice.i)\nparallel(shifted.i)\n");
  cuda::Card& card = cuda::Card::at(0);
  const cuda::OwnedStream own = cuda::make_stream(card);
  const Stream stream = Stream::cuda(own.get());
  Values few{1, 2, 3}, out(3), many(5000), outs(5000);
  const OnCard x(flat(few)), y(flat(out)), longer(flat(many)), longer_out(flat(outs));
  const auto run = [&](const OnCard& from, const OnCard& to) { op.run({.buffers = {{"X", from}, {"Y", to}}}, stream); };
  run(x, y);
  const cuda::Graph graph = cuda::capture(card, own.get(), [&] { run(x, y); });
  run(longer, longer_out);
  y.send();
  cuda::launch(graph, own.get());
  y.fetch();
  EXPECT_EQ(out, (Values{0, 3, 5}));
}

// A search measures graphs of runs on the card, keeps what it finds under the card's name, and calls there take it.
// The first of its rows has `longest` elements, the others `degree`.
Structure graph(int64_t rows, int32_t degree, int32_t longest) {
  std::vector<int32_t> indptr{0}, indices;
  for (int64_t i = 0; i < rows; ++i) {
    const int32_t length = i == 0 ? longest : degree;
    for (int32_t j = 0; j < length; ++j) indices.push_back(j);
    indptr.push_back(static_cast<int32_t>(indices.size()));
  }
  return csr(rows, 400, indptr, indices);
}

TEST_F(SparseCard, SearchesWhereCallsRun) {
  const OwnResults own;
  const Stream stream = Stream::cuda(nullptr);
  const Structure structure = few_places().structure();
  const GatherCall call{.feat = 8, .workers = 0, .device = Device::cuda()};
  std::map<std::string, int> launched;
  testing::watch_launch = [&](const std::string& symbol, const cuda::Grid&, const void*) { ++launched[symbol]; };
  const Tuned tuned = tune_spmm(structure, 8, {.seconds = 0}, stream);
  EXPECT_EQ(tuned.num_tried, 1);
  EXPECT_EQ(static_cast<size_t>(tuned.num_left) + 1, candidates_on_card(*structure.data(), call).size());
  EXPECT_EQ(tuned.choice, "csr prefetch 0 tile 0 lanes 0 group 0");
  EXPECT_GT(tuned.seconds, 0);
  EXPECT_GE(launched["weft_spmm_0"], 1 + 3 * 8) << "three graphs at least, behind a first run";
  const std::string key = results_key(*structure.data(), to_text(call), Device::cuda());
  EXPECT_EQ(read_results(key).size(), 1u);
  EXPECT_NE(key, results_key(*structure.data(), to_text(call)));
  // What another search has found, which cuts rows into pieces; a CTA of so many rows has no memory for them.
  const FormatChoice pieces{.tile = 16, .lanes = 2, .group = 32}, too_large{.tile = 16, .group = 1 << 16};
  const Structure again = graph(22, 3, 40);
  const std::string key_of_it = results_key(*again.data(), to_text(call), Device::cuda());
  keep_results(key_of_it, {{tuned.choice, 1e-3}, {to_text(pieces), 1e-6}, {to_text(too_large), 1e-9}});
  EXPECT_EQ(choice_of(*again.data(), call), pieces);
  Values values = random_values(static_cast<size_t>(again.nnz()), 1), b = random_values(400 * 8, 2);
  Values c(22 * 8), want(22 * 8);
  const TensorView elements = view(values, {again.nnz()}), cols = view(b, {400, 8});
  spmm(again, elements, cols, view(want, {22, 8}));
  const OnCard there_elements(elements), there_cols(cols), there(view(c, {22, 8}));
  launched.clear();
  spmm(again, there_elements, there_cols, there, {}, stream);
  testing::watch_launch = nullptr;
  EXPECT_EQ(launched, (std::map<std::string, int>{{"weft_spmm_row_groups_0", 1}}));
  there.fetch();
  expect_close(doubles(c), doubles(want), 2e-5, "rows in pieces");
}

// What a search found on one structure serves others that are like it, unless it is nothing that they could run.
TEST_F(SparseCard, TakesWhatASearchFoundForAStructureAlike) {
  const OwnResults own;
  const GatherCall call{.feat = 8, .workers = 0, .device = Device::cuda()};
  const Structure searched = graph(300, 4, 40);
  tune_spmm(searched, 8, {.seconds = 0}, Stream::cuda(nullptr));
  const std::string key = likeness_key(likeness_of(*searched.data()), to_text(call), Device::cuda());
  ASSERT_EQ(read_results(key).size(), 1u) << "as the search has kept it";
  const FormatChoice fewer{.prefetch = 2}, long_pieces{.tile = 64};
  keep_results(key, {{to_text(fewer), 1e-6}});
  EXPECT_EQ(choice_of(*graph(290, 4, 39).data(), call), fewer);
  EXPECT_EQ(choice_of(*graph(290, 4, 39).data(), {.feat = 16, .workers = 0, .device = Device::cuda()}), FormatChoice{})
      << "another call";
  EXPECT_EQ(choice_of(*graph(600, 4, 40).data(), call), FormatChoice{}) << "twice as many rows";
  EXPECT_EQ(choice_of(*graph(300, 8, 40).data(), call), FormatChoice{}) << "twice as many elements a row";
  EXPECT_EQ(choice_of(*graph(300, 4, 14).data(), call), FormatChoice{}) << "its longest row is shorter";
  keep_results(key, {{to_text(long_pieces), 1e-6}});
  EXPECT_EQ(choice_of(*graph(291, 4, 39).data(), call), FormatChoice{}) << "no row is so long";
}

// Schedules that no rule makes: half vectors, other CTAs, other numbers of elements a thread.
TEST_F(SparseCard, ComputesWhateverASearchFinds) {
  const std::pair<GatherOperator, FormatChoice> choices[] = {
      {GatherOperator::spmm, {.prefetch = 2, .lanes = 2, .group = 32}},
      {GatherOperator::spmm, {.formats = parse_formats("hyb(2, 1)"), .group = 16}},
      {GatherOperator::sddmm, {.tile = 2, .lanes = 2, .group = 32}}};
  for (const auto& [op, choice] : choices)
    expect_as_interpreted({.name = to_text(choice),
                           .ready = gather_program(op, choice, 8, DType::fp32, Device::cuda()),
                           .axis = "J",
                           .structure = [](const Matrix& a) { return a.structure(); }});
}

TEST_F(SparseCard, SearchesForOtherOperatorsOrSaysWhyNot) {
  const OwnResults own;
  const Stream stream = Stream::cuda(nullptr);
  const CooTensor edges{.extents = {2, 70, 3}, .coordinates = {{0, 1, 1}, {0, 69, 2}, {2, 0, 1}}};
  const TunedRgms tuned = tune_rgms(edges, 8, 8, {.seconds = 0}, stream);
  EXPECT_EQ(tuned.choice, "tile 64 vectors 4 prefetch 8");
  EXPECT_EQ(tuned.num_left, 4);
  expect_contains(refusal([&] { tune_block_spmm(band(4, 1), 1, 8, 32, DType::bf16, {}, stream); }), "tune_block_spmm",
                  "a search that is none on cards");
  expect_contains(refusal([&] { tune_spmm(few_places().structure(), 8, {}, Stream::cuda(nullptr, 5)); }), "cuda:5",
                  "a card that is not there");
}

// What a graph's launch takes is shared by eight runs.
TEST_F(SparseCard, TimesRunsAsNodesOfAGraph) {
  int runs = 0;
  const std::unique_ptr<const Stopwatch> stopwatch = cuda_backend().stopwatch(Device::cuda(), {});
  const std::function<double()> timed = stopwatch->timed([&] { ++runs; });
  EXPECT_EQ(runs, 8);
  EXPECT_GE(timed(), 0);
  EXPECT_EQ(runs, 8) << "the graph runs, and not what it was made of";
}

TEST_F(SparseCard, NamesWhatDoesNotLieThere) {
  const Operator op =
      compiled(kSpmmProgram, "lower()\nko, ki = split(csrmm.k, 4)\nvectorize(ki)\nparallel(csrmm.i)\n", {{"feat", 16}});
  const Spmm spmm(op);
  const auto why = [&](const RunArguments& arguments, Stream stream = Stream::cuda(nullptr)) {
    return refusal([&] { op.run(arguments, stream); });
  };
  RunArguments arguments = spmm.card.arguments;
  arguments.buffers["B"] = spmm.host.arguments.buffers.at("B");
  EXPECT_EQ(why(arguments), "invalid_device: buffers['B']: lies on cpu; the operator runs on cuda:0");
  arguments = spmm.card.arguments;
  const TensorView& b = arguments.buffers.at("B");
  const Workspace longer(Device::cuda(), static_cast<size_t>(b.size()) * 4 + 16);
  arguments.buffers["B"] = TensorView(static_cast<char*>(longer.data()) + 4, DType::fp32, b.shape(), Device::cuda());
  expect_contains(why(arguments), "required: a multiple of 16 bytes", "a tensor that begins elsewhere");
  WorkerTeam team(1);
  expect_contains(why(spmm.card.arguments, Stream::cpu(team)), "stream: lies on cpu", "a stream of the CPU");
  EXPECT_EQ(why(spmm.card.arguments), "");
}

// What has no meaning on a card names the schedule's line before anything is compiled.
TEST_F(SparseCard, RefusesByTheScheduleLine) {
  expect_contains(refusal([&] {
                    compiled(kSddmmProgram,
                             "lower()\ncache_read(sddmm.i, X, shared)\nbind(sddmm.i, blockIdx.x)\n"
                             "bind(sddmm_fetch.k, threadIdx.x)\nbind(sddmm.j, threadIdx.x)\n",
                             {{"feat", 65536}});
                  }),
                  "bytes of shared memory", "more than a launch may ask for");
  expect_contains(
      refusal([&] {
        compiled(kSddmmProgram, "lower()\ncache_read(sddmm.i, X, shared)\nparallel(sddmm.i)\n", {{"feat", 64}});
      }),
      "line 2: sddmm: 'X_local' is in shared memory within a parallel loop", "memory of a CTA");
}

// Indices that change on the card after a run: what is read beyond range is 0, and nothing lies there.
TEST_F(SparseCard, ReadsNothingBeyondRange) {
  constexpr const char* kGather = R"(program gather(m, n, top):
  I = dense_fixed(m)
  J = dense_fixed(n)
  Index = buffer(I): int32
  X = buffer(J): fp32
  Y = buffer(I): fp32
  iterate gather(I) "S" as (i) where i < top:
    Y[i] = X[Index[i]]
)";
  const Operator op = compiled(kGather, "lower()\nbind(gather.i, threadIdx.x)\n");
  std::vector<int32_t> index{2, 0, 1, 2};
  Values x{1, 2, 3}, y(4);
  const OnCard there_index(flat(index)), there_x(flat(x)), there_y(flat(y));
  const auto run = [&](int64_t top = 4) {
    op.run({.buffers = {{"Index", there_index}, {"X", there_x}, {"Y", there_y}}, .scalars = {{"top", top}}}, stream_);
    stream_.synchronize();
    there_y.fetch();
    return y;
  };
  EXPECT_EQ(run(), (Values{3, 1, 2, 3}));
  index = {3, -1, INT32_MAX, 0};
  there_index.send();
  EXPECT_EQ(run(), (Values{0, 0, 0, 1}));
  // A run like the last one, over other tensors.
  Values others{5, 6, 7}, out(4);
  const OnCard there_others(flat(others)), there_out(flat(out));
  op.run({.buffers = {{"Index", there_index}, {"X", there_others}, {"Y", there_out}}, .scalars = {{"top", 4}}},
         stream_);
  there_out.fetch();
  EXPECT_EQ(out, (Values{0, 0, 0, 5}));
  // Code counts in 32 bits: what may not fit is refused before it runs.
  EXPECT_EQ(run(loop::kMostOfParameter), (Values{0, 0, 0, 1}));
  EXPECT_EQ(
      refusal([&] { run(loop::kMostOfParameter + 1); }),
      "unsupported: parameter 'top': is 2147418113; operators on cards take up to 2147418112, as they count in 32 "
      "bits");
}

// Numbers that only the card knows: what has no place is left out, and said at the next synchronize(), once.
TEST_F(SparseCard, SaysAtSynchronizeWhatFailed) {
  constexpr const char* kMove = R"(program move(n):
  I = dense_fixed(n)
  X = buffer(I): int32
  Y = buffer(I): int32
  iterate move(I) "S" as (i):
    Y[X[i] + i] = i
)";
  const Operator op = compiled(kMove, "lower()\n");
  std::vector<int32_t> x{0, 0, 7, -3}, y{0, 0, 0, 0};
  const OnCard there_x(flat(x)), there_y(flat(y));
  const auto run = [&] { op.run({.buffers = {{"X", there_x}, {"Y", there_y}}}, stream_); };
  run();
  run();
  expect_contains(refusal([&] { stream_.synchronize(); }), "iteration 'move' writes 'Y' at (4 or beyond)", "beyond");
  EXPECT_EQ(refusal([&] { stream_.synchronize(); }), "");
  // Said although the operator has been bound anew since.
  run();
  std::vector<int32_t> none(6), zeros(6);
  const OnCard there_none(flat(none)), there_zeros(flat(zeros));
  op.run({.buffers = {{"X", there_none}, {"Y", there_zeros}}}, stream_);
  expect_contains(refusal([&] { stream_.synchronize(); }), "iteration 'move' writes 'Y' at (4 or beyond)",
                  "bound anew");
  EXPECT_EQ(refusal([&] { stream_.synchronize(); }), "");
}

}  // namespace
}  // namespace weft::sparse::test
