// decompose_format into every named format, by value against dense arithmetic; and what it refuses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/ready.h"
#include "tests/sparse/programs.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test::decompose {
namespace {

constexpr int64_t kFeatures = 5;

// What takes longest is compiling: without, the stages alone are compared.
struct Made {
  Made(const char* program, const std::string& schedule, bool is_compiled = true)
      : op(compile(parse(program), schedule, Device::cpu(), {.stop_after = is_compiled ? "" : "generate"})),
        compiled(is_compiled) {}
  void expect(const RunArguments& arguments, const std::string& output, const std::vector<double>& want,
              const std::string& what) const {
    if (compiled) return expect_everywhere(op, arguments, output, want, what);
    for (const Stage stage : {Stage::one, Stage::two, Stage::three})
      expect_close(interpret_operator(op, arguments, stage).buffers.at(output), want, 1e-6, what);
  }
  Operator op;
  bool compiled;
};

void expect_spmm(const Made& made, const std::string& what) {
  uint32_t seed = 900;
  for (const Shape shape : some_shapes()) {
    const Matrix a = random_matrix(shape, seed++);
    Values b = random_values(static_cast<size_t>(a.cols * kFeatures), seed), c(static_cast<size_t>(a.rows * kFeatures));
    made.expect({.structures = {{"J", a.structure()}},
                 .buffers = {{"A", a.values_view()},
                             {"B", {b.data(), DType::fp32, {a.cols, kFeatures}}},
                             {"C", {c.data(), DType::fp32, {a.rows, kFeatures}}}}},
                "C", dense_spmm(a, b, kFeatures), what + ", " + name_of(shape));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Decompose, SpmmInEveryNamedFormat) {
  for (const char* formats :
       {"csc()", "coo()", "dcsr()", "dbsr(2)", "dbsr(3), dcsr()", "dia()", "dia(), csr()", "sr_bcrs(4, 2)",
        "sr_bcrs(3, 4), csc()", "dia(), dbsr(2), sr_bcrs(2, 3), ell(1), coo()", "ell(1), bsr(2)"})
    expect_spmm({kSpmmProgram, fmt::format("decompose_format(csrmm, A, {})\n", formats)}, formats);
}

TEST(Decompose, FormatsHaveSchedules) {
  const std::pair<const char*, const char*> cases[] = {
      {"csc()", "sparse_reorder(csrmm_csc, K, J_csc, I_csc)\nlower()\nparallel(csrmm_csc.k)\n"},
      {"dcsr()", "lower()\nparallel(csrmm_dcsr.i)\n"},
      {"dbsr(2)", "lower()\nparallel(csrmm.io)\nunroll(csrmm.ii)\n"},
      {"sr_bcrs(4, 2)", "lower()\nparallel(csrmm.s)\nunroll(csrmm.j)\n"},
      {"dia()", "lower()\nreorder(csrmm.i, csrmm.d)\nparallel(csrmm.i)\n"},
  };
  for (const auto& [format, schedule] : cases)
    expect_spmm({kSpmmProgram, fmt::format("decompose_format(csrmm, A, {})\n{}", format, schedule), false}, format);
}

void expect_sddmm(const Made& made, const std::string& what) {
  uint32_t seed = 940;
  for (const Shape shape : some_shapes()) {
    const Matrix a = random_matrix(shape, seed++);
    Values x = random_values(static_cast<size_t>(a.rows * kFeatures), seed), out(a.values.size());
    Values y = random_values(static_cast<size_t>(a.cols * kFeatures), seed + 1);
    made.expect({.structures = {{"J", a.structure()}},
                 .buffers = {{"A", a.values_view()},
                             {"X", {x.data(), DType::fp32, {a.rows, kFeatures}}},
                             {"Y", {y.data(), DType::fp32, {a.cols, kFeatures}}},
                             {"O", {out.data(), DType::fp32, {static_cast<int64_t>(out.size())}}}}},
                "O", dense_sddmm(a, x, y, kFeatures), what + ", " + name_of(shape));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Each format has results of its own, which are gathered into the caller's.
TEST(Decompose, SddmmInEveryNamedFormat) {
  for (const char* formats :
       {"csr()", "ell(2), csr()", "bsr(2)", "bsr(2), csr()", "csc()", "dcsr()", "dbsr(3)", "dia()", "dia(), csr()",
        "coo()", "sr_bcrs(4, 2)", "sr_bcrs(3, 1), coo()", "ell(1), coo()", "hyb(1, 0)", "hyb(1, 2)", "hyb(3, 1)",
        "bsr(2), hyb(2, 2)", "sr_bcrs(2, 3), dia(), ell(1), hyb(1, 1)"})
    expect_sddmm({kSddmmProgram, fmt::format("decompose_format(sddmm, A, {})\n", formats), false}, formats);
  expect_sddmm({kSddmmProgram,
                "decompose_format(sddmm, A, bsr(2), csr())\nlower()\nparallel(sddmm.io)\nparallel(sddmm_gather.i)\n"},
               "bsr(2), csr(), shared");
}

// What one needs that no coordinate tells is where an element stands in a format: an array says so.
TEST(Decompose, SddmmInFormatsThatCountPlacesIsCompiled) {
  for (const char* formats : {"coo()", "sr_bcrs(4, 2)", "hyb(2, 1)", "sr_bcrs(2, 2), hyb(1, 1)"})
    expect_sddmm({kSddmmProgram, fmt::format("decompose_format(sddmm, A, {})\n", formats)}, formats);
}

// hyb of a stack of matrices: scores on the edges of every relation.
TEST(Decompose, SddmmOfAStackInHyb) {
  const char* text = R"(program scores(relations, m, n, rows, nnz, feat):
  R = dense_fixed(relations)
  I = sparse_variable(R, m, rows, indptr=i_indptr, indices=i_indices)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  M = dense_fixed(m)
  N = dense_fixed(n)
  K = dense_fixed(feat)
  A = buffer(R, I, J): fp32
  X = buffer(M, K): fp32
  Y = buffer(N, K): fp32
  O = buffer(R, I, J): fp32
  iterate scores(R, I, J, K) "SSSR" as (r, i, j, k):
    init:
      O[r, i, j] = 0.0
    O[r, i, j] = O[r, i, j] + A[r, i, j] * X[i, k] * Y[j, k]
)";
  const Matrix a = random_matrix(Shape::one_dense_row, 958);
  const Coo coo = a.coo();
  CooTensor edges{.extents = {3, a.rows, a.cols}, .coordinates = {{}, coo.rows, coo.cols}};
  for (size_t e = 0; e < coo.rows.size(); ++e) edges.coordinates[0].push_back(static_cast<int32_t>(e % 2) * 2);
  const Converted stack = relations_from_coo(edges);
  Values x = random_values(static_cast<size_t>(a.rows * kFeatures), 959), out(a.values.size()), values(a.values.size());
  Values y = random_values(static_cast<size_t>(a.cols * kFeatures), 960);
  const std::vector<double> dense = dense_sddmm(a, x, y, kFeatures);
  std::vector<double> want(dense.size());
  for (size_t p = 0; p < want.size(); ++p) {
    const auto e = static_cast<size_t>(stack.order[p]);
    values[p] = a.values[e];
    want[p] = dense[e];
  }
  const auto nnz = static_cast<int64_t>(out.size());
  for (const char* format : {"hyb(1, 1)", "hyb(2, 0)"})
    Made{text, fmt::format("decompose_format(scores, A, {})\n", format)}.expect(
        {.structures = {{"J", stack.structure}},
         .buffers = {{"A", {values.data(), DType::fp32, {nnz}}},
                     {"X", {x.data(), DType::fp32, {a.rows, kFeatures}}},
                     {"Y", {y.data(), DType::fp32, {a.cols, kFeatures}}},
                     {"O", {out.data(), DType::fp32, {nnz}}}}},
        "O", want, format);
}

// One structure for all heads; what the caller gives is added to.
TEST(Decompose, SddmmOfHeadsWithoutInitAddsToWhatIsThere) {
  const char* text = R"(program scores(heads, m, n, nnz, feat):
  H = dense_fixed(heads)
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  K = dense_fixed(feat)
  A = buffer(I, J): fp32
  X = buffer(H, I, K): fp32
  Y = buffer(H, N, K): fp32
  O = buffer(H, I, J): fp32
  iterate scores(H, I, J, K) "SSSR" as (h, i, j, k):
    O[h, i, j] = O[h, i, j] + A[i, j] * X[h, i, k] * Y[h, j, k]
)";
  const Operator op = compile(parse(text), "decompose_format(scores, A, bsr(2))\n");
  const Matrix a = random_matrix(Shape::uniform, 951);
  const int64_t heads = 2, nnz = static_cast<int64_t>(a.values.size());
  Values x = random_values(static_cast<size_t>(heads * a.rows * kFeatures), 952);
  Values y = random_values(static_cast<size_t>(heads * a.cols * kFeatures), 953);
  Values out = random_values(static_cast<size_t>(heads * nnz), 954);
  std::vector<double> want = doubles(out);
  for (int64_t h = 0; h < heads; ++h) {
    const Values x_h(x.begin() + h * a.rows * kFeatures, x.begin() + (h + 1) * a.rows * kFeatures);
    const Values y_h(y.begin() + h * a.cols * kFeatures, y.begin() + (h + 1) * a.cols * kFeatures);
    const std::vector<double> scores = dense_sddmm(a, x_h, y_h, kFeatures);
    for (int64_t p = 0; p < nnz; ++p) want[static_cast<size_t>(h * nnz + p)] += scores[static_cast<size_t>(p)];
  }
  op.run({.structures = {{"J", a.structure()}},
          .buffers = {{"A", a.values_view()},
                      {"X", {x.data(), DType::fp32, {heads, a.rows, kFeatures}}},
                      {"Y", {y.data(), DType::fp32, {heads, a.cols, kFeatures}}},
                      {"O", {out.data(), DType::fp32, {heads, nnz}}}}});
  expect_close(doubles(out), want, 1e-5, "heads");
}

// Points that `where` leaves out stay as init of nobody: what gathers leaves them out, too.
TEST(Decompose, SddmmLeavesOutWhatWhereDoes) {
  const std::string text = replaced(kSddmmProgram, "as (i, j, k):", "as (i, j, k) where j >= 2, k != 1:");
  const Operator op = compile(parse(text), "decompose_format(sddmm, A, bsr(2))\n");
  const Operator plain = compile(parse(text));
  const Matrix a = random_matrix(Shape::uniform, 955);
  Values x = random_values(static_cast<size_t>(a.rows * kFeatures), 956), got(a.values.size(), 7),
         want(a.values.size(), 7);
  Values y = random_values(static_cast<size_t>(a.cols * kFeatures), 957);
  for (const bool decomposed : {true, false}) {
    Values& out = decomposed ? got : want;
    (decomposed ? op : plain)
        .run({.structures = {{"J", a.structure()}},
              .buffers = {{"A", a.values_view()},
                          {"X", {x.data(), DType::fp32, {a.rows, kFeatures}}},
                          {"Y", {y.data(), DType::fp32, {a.cols, kFeatures}}},
                          {"O", {out.data(), DType::fp32, {static_cast<int64_t>(out.size())}}}}});
  }
  expect_close(doubles(got), doubles(want), 1e-5, "where");
}

TEST(Decompose, HybOfOneNumberTakesTheMeanLengthOfARow) {
  const auto stage1 = [](const char* format, int64_t nnz) {
    return compile(parse(kSpmmProgram), fmt::format("decompose_format(csrmm, A, {})\n", format), Device::cpu(),
                   {.set = {{"m", 10}, {"nnz", nnz}}, .stop_after = "generate"})
        .text("stage1");
  };
  EXPECT_EQ(stage1("hyb(1)", 41), stage1("hyb(1, 3)", 41));
  EXPECT_EQ(stage1("hyb(2)", 40), stage1("hyb(2, 2)", 40));
  EXPECT_NE(stage1("hyb(1)", 41), stage1("hyb(1, 2)", 41));
  // A call has the structure.
  const Matrix a = random_matrix(Shape::power_law, 961);
  Values b = random_values(static_cast<size_t>(a.cols * kFeatures), 962), c(static_cast<size_t>(a.rows * kFeatures));
  spmm(a.structure(), a.values_view(), {b.data(), DType::fp32, {a.cols, kFeatures}},
       {c.data(), DType::fp32, {a.rows, kFeatures}}, {.format = "hyb(2)"});
  expect_close(doubles(c), dense_spmm(a, b, kFeatures), 1e-5, "hyb(2)");
}

// Blocks store places of no element: a largest element would see their zeros.
TEST(Decompose, FormatsThatStoreZerosAreForSumsOfProducts) {
  const std::string largest = R"(program largest(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  A = buffer(I, J): fp32
  X = buffer(N): fp32
  Y = buffer(I): fp32
  iterate largest(I, J) "SR" as (i, j):
    init:
      Y[i] = -inf
    Y[i] = STORE
)";
  const auto made = [&](const char* store, const char* format) {
    return refusal([&] {
      compile(parse(replaced(largest, "STORE", store)), fmt::format("decompose_format(largest, A, {})\n", format),
              Device::cpu(), {.stop_after = "generate"});
    });
  };
  for (const char* format : {"bsr(2)", "dbsr(2)", "dia()", "sr_bcrs(2, 2)", "csr(), bsr(2)"})
    for (const char* store :
         {"max(Y[i], A[i, j] * X[j])", "Y[i] + X[j]", "Y[i] + (A[i, j] + 1.0)", "Y[i] + exp(A[i, j])"})
      expect_contains(made(store, format), "also stores places of no element, where 'A' is 0", format);
  for (const char* format : {"csr()", "ell(2), csr()", "hyb(1, 1)", "csc()", "coo()", "dcsr()"})
    EXPECT_EQ(made("max(Y[i], A[i, j] * X[j])", format), "") << format;
  for (const char* store :
       {"Y[i] + A[i, j] * X[j]", "Y[i] + X[j] * (A[i, j] - A[i, j] * 2.0)", "Y[i] + -A[i, j] / 2.0"})
    EXPECT_EQ(made(store, "bsr(2)"), "") << store;
}

// A block may have places whose elements a format before it has taken: those stay 0.
TEST(Decompose, BlocksStandBehindFormatsThatCountPlaces) {
  for (const char* formats : {"sr_bcrs(2, 2), dbsr(2)", "sr_bcrs(3, 2), bsr(2), coo()", "sr_bcrs(2, 1), dia()"}) {
    const std::string schedule = fmt::format("decompose_format(csrmm, A, {})\n", formats);
    expect_spmm({kSpmmProgram, schedule}, formats);
    EXPECT_NE(compile(parse(kSpmmProgram), schedule, Device::cpu(), {.stop_after = "generate"})
                  .text("stage1")
                  .find("_place = buffer(I, J): int32"),
              std::string::npos);
  }
}

TEST(Decompose, ResultsOnTheDecomposedAxesAreRefusedWhereTheyCannotBeGathered) {
  const auto says = [](const std::string& body, const std::string& part) {
    const std::string text = replaced(kSddmmProgram, "    O[i, j] = O[i, j] + A[i, j] * (X[i, k] * Y[j, k])\n", body);
    ASSERT_NE(text, kSddmmProgram);
    expect_contains(refusal([&] {
                      compile(parse(text), "decompose_format(sddmm, A, csr())\n", Device::cpu(),
                              {.stop_after = "generate"});
                    }),
                    part, body);
  };
  says("    O[i, j] = O[i, j] + A[i, j] * (X[i, k] * Y[j, k]) + O[i, j]\n", "'O' is");
  says("    O[i, j] = O[i, j] + A[i, j] * O[i, j + 1]\n", "'O' is read or written besides");
}

// A copy of A is made before init would set it; of results, formats have their own.
TEST(Decompose, WhatInitAloneSetsIsRefused) {
  const auto says = [](const std::string& init, const char* buffer, const std::string& part) {
    const std::string text = replaced(kSddmmProgram, "      O[i, j] = 0.0\n", "      O[i, j] = 0.0\n" + init);
    ASSERT_NE(text, kSddmmProgram);
    expect_contains(refusal([&] {
                      compile(parse(text), fmt::format("decompose_format(sddmm, {}, csr())\n", buffer), Device::cpu(),
                              {.stop_after = "generate"});
                    }),
                    part, init);
  };
  says("      A[i, j] = 0.0\n", "A", "decompose_format(sddmm, A): init sets 'A', which the iteration does not compute");
}

// Results are gathered once, from formats that begin where init says.
TEST(Decompose, ResultsThatCannotBeGatheredAreRefused) {
  const auto says = [](const std::string& body, const std::string& part) {
    const std::string text = program_in_csr(R"(  K = dense_fixed(4)
  A = buffer(I, J): fp32
  P = buffer(K): int32
  S = buffer(I, J): fp32
  T = buffer(I, J): fp32
  U = buffer(I, J, K): fp32
  iterate it(I, J, K) "SSR" as (i, j, k):
    init:
      S[i, j] = 0.0
    S[i, j] = S[i, j] + A[i, j]
)");
    expect_contains(refusal([&] {
                      compile(parse(text + body), "decompose_format(it, A, csr())\n", Device::cpu(),
                              {.stop_after = "generate"});
                    }),
                    part, body);
  };
  says("    T[i, j] = T[i, j] + A[i, j]\n", "decompose_format(it, A): init sets other results, and not 'T'");
  says("    U[i, j, P[k]] = U[i, j, P[k]] + A[i, j]\n",
       "'U' is written at P[k], another element in each iteration of the reduction 'k'");
}

// The formats hold nothing before init: it reads what the caller gives.
std::string sums_whose_init_is(const std::string& init) {
  return fmt::format(R"(program p(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  K = dense_fixed(4)
  A = buffer(I, J): fp32
  S = buffer(I, J): fp32
  U = buffer(I, J): fp32
  iterate it(I, J, K) "SSR" as (i, j, k) where i % 5 != 3:
    init:
{}    S[i, j] = S[i, j] + A[i, j]
    U[i, j] = U[i, j] + 2.0 * A[i, j]
)",
                     init);
}

TEST(Decompose, InitReadsItsResultsOfTheCaller) {
  for (const char* init : {"      S[i, j] = min(S[i, j], 0.0)\n      U[i, j] = 0.5 * U[i, j]\n",
                           // What init has set before is the format's own.
                           "      S[i, j] = 0.25 * S[i, j] + U[i, j]\n      U[i, j] = S[i, j] * 2.0 + U[i, j]\n"})
    for (const char* formats : {"csc()", "bsr(2)", "csr()", "coo()", "bsr(2), csr()", "ell(2), coo()", "hyb(2, 2)"})
      expect_same_results(sums_whose_init_is(init), fmt::format("decompose_format(it, A, {})\n", formats), {});
}

TEST(Decompose, InitThatReadsOtherResultsIsRefused) {
  const std::string text = sums_whose_init_is("      S[i, j] = min(S[i, 0], 0.0)\n      U[i, j] = 0.5 * U[i, j]\n");
  expect_contains(refusal([&] {
                    compile(parse(text), "decompose_format(it, A, csc())\n", Device::cpu(), {.stop_after = "generate"});
                  }),
                  "init reads S[i, 0], another element than is written at its point", text);
  // Places of other formats' elements would begin with what these have begun with already.
  expect_contains(
      refusal([&] {
        compile(parse(sums_whose_init_is("      S[i, j] = S[i, j]\n      U[i, j] = 0.0\n")),
                "decompose_format(it, A, csr(), bsr(2))\n", Device::cpu(), {.stop_after = "generate"});
      }),
      "format bsr_2 also stores places whose elements formats before it have: every format begins 'S' with "
      "what init gives, which would be counted twice there; allowed are an init of 0, or bsr_2 as the first "
      "format",
      "");
}

// ---------------------------------------------------------------- element by element

constexpr const char* kElements = R"(program elements(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  X = buffer(I, J): fp32
  W = buffer(I, J): fp32
  D = buffer(I, N): fp32
  Y = buffer(I, J): fp32
  iterate elements(I, J) "SS" as (i, j):
    BODY
)";

// The matrix' values go through `f`; W is twice X.
void expect_elements(const std::string& body, const std::string& schedule, const std::string& output,
                     const std::function<double(double x)>& f) {
  const std::string text = replaced(kElements, "BODY", body);
  const Operator op = compile(parse(text), schedule);
  for (const Shape shape : some_shapes()) {
    const Matrix a = random_matrix(shape, 971);
    const auto nnz = static_cast<int64_t>(a.values.size());
    Values w = a.values, y(a.values.size(), 7), d(static_cast<size_t>(a.rows * a.cols), 7);
    for (float& v : w) v *= 2;
    std::vector<double> want_y, want_d = doubles(d);
    for (const float v : a.values) want_y.push_back(f(v));
    const Coo coo = a.coo();
    for (size_t e = 0; e < a.values.size(); ++e)
      want_d[static_cast<size_t>(coo.rows[e] * a.cols + coo.cols[e])] = f(a.values[e]);
    const RunArguments arguments{.structures = {{"J", a.structure()}},
                                 .buffers = {{"X", a.values_view()},
                                             {"W", {w.data(), DType::fp32, {nnz}}},
                                             {"D", {d.data(), DType::fp32, {a.rows, a.cols}}},
                                             {"Y", {y.data(), DType::fp32, {nnz}}}}};
    const std::string what = body + "\n" + schedule + name_of(shape);
    for (const Stage stage : interpreted_stages(Stage::source))
      expect_close(interpret_operator(op, arguments, stage).buffers.at(output), output == "Y" ? want_y : want_d, 1e-6,
                   what);
    op.run(arguments);
    expect_close(doubles(output == "Y" ? y : d), output == "Y" ? want_y : want_d, 1e-5, what);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Each format computes its own elements of what is read, of what is written, or of a dense result.
TEST(Decompose, ElementsAreComputedInTheFormatsOfEitherSide) {
  const auto exponential = [](double x) { return std::exp(x) + 2 * x; };
  for (const char* formats :
       {"csr()", "bsr(2)", "bsr(2), csr()", "coo()", "hyb(2, 1)", "ell(2), dcsr()", "dia(), csc()"})
    for (const char* buffer : {"X", "Y"})
      expect_elements("Y[i, j] = exp(X[i, j]) + W[i, j]",
                      fmt::format("decompose_format(elements, {}, {})\n", buffer, formats), "Y", exponential);
  for (const char* formats : {"ell(2), csr()", "coo()", "hyb(1, 1)"})
    expect_elements("D[i, j] = exp(X[i, j]) + W[i, j]", fmt::format("decompose_format(elements, X, {})\n", formats),
                    "D", exponential);
  // Blocks behind others have places of their elements, which are 0 there as long as the product is.
  expect_elements("Y[i, j] = X[i, j] * W[i, j]", "decompose_format(elements, X, bsr(2), dbsr(3))\n", "Y",
                  [](double x) { return 2 * x * x; });
  // A sum that adds to what is there, of what is written.
  expect_elements("Y[i, j] = Y[i, j] + X[i, j]", "decompose_format(elements, Y, bsr(2), csr())\n", "Y",
                  [](double x) { return 7 + x; });
}

TEST(Decompose, ElementsOfAScheduleAreSharedByTheTeam) {
  expect_elements("Y[i, j] = exp(X[i, j])",
                  "decompose_format(elements, X, bsr(2), csr())\nlower()\nparallel(elements.io)\n"
                  "parallel(elements_csr.i)\nparallel(elements_gather.i)\n",
                  "Y", [](double x) { return std::exp(x); });
}

TEST(Decompose, ConditionsReadTheFormatsToo) {
  expect_elements("Y[i, j] = select(X[i, j] > 0.0, X[i, j], 0.0 - W[i, j])", "decompose_format(elements, X, bsr(2))\n",
                  "Y", [](double x) { return x > 0 ? x : -2 * x; });
  const std::string where = replaced(kElements, "as (i, j):\n    BODY",
                                     "as (i, j) where X[i, j] > 0.0:\n    "
                                     "Y[i, j] = X[i, j] * 3.0");
  for (const char* schedule :
       {"", "decompose_format(elements, X, bsr(2), csr())\n", "decompose_format(elements, Y, bsr(2))\n",
        "decompose_format(elements, X, ell(1), dia(), csr())\n"}) {
    const Operator op = compile(parse(where), schedule);
    const Matrix a = random_matrix(Shape::uniform, 972);
    Values y(a.values.size(), 7), unused(static_cast<size_t>(a.rows * a.cols));
    std::vector<double> want;
    for (const float v : a.values) want.push_back(v > 0 ? 3 * v : 7);
    const auto nnz = static_cast<int64_t>(y.size());
    op.run({.structures = {{"J", a.structure()}},
            .buffers = {{"X", a.values_view()},
                        {"W", a.values_view()},
                        {"D", {unused.data(), DType::fp32, {a.rows, a.cols}}},
                        {"Y", {y.data(), DType::fp32, {nnz}}}}});
    expect_close(doubles(y), want, 1e-5, schedule);
  }
}

TEST(Decompose, ElementsAreRefusedWhereFormatsMeet) {
  const auto says = [](const std::string& body, const char* operands, const std::string& part) {
    expect_contains(refusal([&] {
                      compile(parse(replaced(kElements, "BODY", body)),
                              fmt::format("decompose_format(elements, {})\n", operands), Device::cpu(),
                              {.stop_after = "generate"});
                    }),
                    part, body);
  };
  // exp(0) is no 0: it would be added where the first format has the element.
  says("Y[i, j] = exp(X[i, j])", "X, bsr(2), bsr(4)",
       "format bsr_4 also stores places of no element, where 'X' is 0: what is written to 'Y' has to be 0 there");
  says("Y[i, j] = X[i, j] * 2.0", "Y, bsr(2), bsr(4)",
       "format bsr_4 also stores places of no element: what formats before it compute of 'Y'");
  says("D[i, j] = X[i, j] * 2.0", "X, bsr(2)",
       "format bsr_2 also stores places of no element, where it would overwrite what 'D' has");
  says("Y[i, j] = Y[i, j] * 2.0", "Y, csr()", "'Y' has no init, and is no sum");
  says("Y[i, j] = X[i, j] + X[i, j + 1]", "X, csr()", "it is read at X[i, j + 1], not at the iterators of its axes");
}

// Formats that are asked by what gathers: a sum that begins elsewhere would be counted in each.
TEST(Decompose, SumsInBlocksBehindOthersBeginAtZero) {
  const auto made = [](const std::string& from, const std::string& to) {
    return refusal([&] {
      compile(parse(replaced(kSddmmProgram, from, to)), "decompose_format(sddmm, A, bsr(2), bsr(4))\n", Device::cpu(),
              {.stop_after = "generate"});
    });
  };
  EXPECT_EQ(made("O[i, j] = 0.0", "O[i, j] = 0.0"), "");
  expect_contains(made("O[i, j] = 0.0", "O[i, j] = 1.0"), "every format begins 'O' with what init gives", "init");
  expect_contains(made("A[i, j] * (X", "(A[i, j] + 1.0) * (X"), "format bsr_4 also stores places of no element", "sum");
}

// ---------------------------------------------------------------- what is decomposed already

// A part of a matrix is a matrix: it is decomposed in turn, and its parts are scheduled by either name.
TEST(Decompose, PartsOfAMatrixAreDecomposedInTurn) {
  for (const char* schedule :
       {"decompose_format(csrmm, A, bsr(2), csr())\ndecompose_format(csrmm_csr, A_csr, ell(1), csr())\n",
        "decompose_format(csrmm, A, csr())\ndecompose_format(csrmm_csr, A_csr, bsr(2), csr())\n"
        "decompose_format(csrmm_csr_csr_2, A_csr_csr_2, hyb(1, 1))\n",
        "decompose_format(csrmm, A, csr())\ndecompose_format(csrmm_csr, A_csr, sr_bcrs(2, 1), coo())\nlower()\n"
        "ko, ki = split(csrmm.k, 4)\nvectorize(ki)\nparallel(csrmm.s)\nparallel(csrmm_init.i)\n"})
    expect_spmm({kSpmmProgram, schedule}, schedule);
  expect_sddmm(
      {kSddmmProgram, "decompose_format(sddmm, A, bsr(2), csr())\ndecompose_format(sddmm_csr, A_csr, ell(1), coo())\n"},
      "parts of sddmm");
}

// `one` and `squares` read A, `two` what `squares` computes.
constexpr const char* kTwice = R"(program twice(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  A = buffer(I, J): fp32
  B = buffer(N): fp32
  T = temporary(I, J): fp32
  C = buffer(I): fp32
  D = buffer(I): fp32
  iterate one(I, J) "SR" as (i, j):
    init:
      C[i] = 0.0
    C[i] = C[i] + A[i, j] * B[j]
  iterate squares(I, J) "SS" as (i, j):
    T[i, j] = A[i, j] * A[i, j]
  iterate two(I, J) "SR" as (i, j):
    init:
      D[i] = 0.0
    D[i] = D[i] + T[i, j] * B[j]
)";

void expect_twice(const std::string& schedule) {
  const Operator op = compile(parse(kTwice), schedule);
  for (int call = 0; call < 2; ++call) {  // T is computed anew, whatever stays
    const Matrix a = random_matrix(Shape::power_law, 973);
    Values values = random_values(a.values.size(), 974 + static_cast<uint32_t>(call));
    const Values b = random_values(static_cast<size_t>(a.cols), 976);
    Values c(static_cast<size_t>(a.rows)), d(static_cast<size_t>(a.rows));
    std::vector<double> want_c(c.size(), 0), want_d(d.size(), 0);
    const Coo coo = a.coo();
    for (size_t e = 0; e < values.size(); ++e) {
      const auto i = static_cast<size_t>(coo.rows[e]), j = static_cast<size_t>(coo.cols[e]);
      want_c[i] += static_cast<double>(values[e]) * b[j];
      want_d[i] += static_cast<double>(values[e]) * values[e] * b[j];
    }
    const RunArguments arguments{.structures = {{"J", a.structure()}},
                                 .buffers = {{"A", {values.data(), DType::fp32, {static_cast<int64_t>(values.size())}}},
                                             {"B", {b.data(), DType::fp32, {a.cols}}},
                                             {"C", {c.data(), DType::fp32, {a.rows}}},
                                             {"D", {d.data(), DType::fp32, {a.rows}}}}};
    expect_everywhere(op, arguments, "C", want_c, schedule);
    expect_everywhere(op, arguments, "D", want_d, schedule);
  }
}

// Two iterations that read one matrix, each in formats of its own.
TEST(Decompose, AMatrixIsDecomposedForEachIterationThatReadsIt) {
  expect_twice("decompose_format(one, A, bsr(2), csr())\ndecompose_format(two, T, bsr(2), csr())\n");
  expect_twice(
      "decompose_format(one, A, hyb(1, 1))\ndecompose_format(squares, A, hyb(1, 2))\n"
      "decompose_format(two, T, coo())\n");
  expect_twice("decompose_format(two, T, csr())\ndecompose_format(two_csr, T_csr, ell(1), csr())\n");
}

// How many iterations copy values into formats.
int copies_in(const std::string& program, const std::string& schedule) {
  const Operator op =
      compile(parse(program), schedule, Device::cpu(), {.set = {{"m", 10}, {"nnz", 41}}, .stop_after = "generate"});
  const std::string text = op.text("stage1");
  int count = 0;
  for (size_t at = text.find(" copy_"); at != text.npos; at = text.find(" copy_", at + 1)) ++count;
  return count;
}

TEST(Decompose, IterationsThatReadAMatrixInTheSameFormatsHaveOneCopy) {
  for (const char* schedule :
       {"decompose_format(one, A, bsr(2), csr())\ndecompose_format(squares, A, bsr(2), csr())\n",
        "decompose_format(squares, A, bsr(2), csr())\ndecompose_format(one, A, bsr(2), csr())\n",
        // What gathers asks for the places on coo's axis, which the sums do not.
        "decompose_format(one, A, ell(1), coo())\ndecompose_format(squares, A, ell(1), coo())\n",
        // A part of a copy that two share is decomposed for both.
        "decompose_format(one, A, csr())\ndecompose_format(squares, A, csr())\n"
        "decompose_format(one_csr, A_csr, coo())\ndecompose_format(squares_csr, A_csr, coo())\n",
        "decompose_format(one, A, coo(), csr())\ndecompose_format(squares, A, coo(), csr())\nlower()\n"
        "parallel(squares_gather.i)\n"}) {
    EXPECT_EQ(copies_in(kTwice, schedule), 2) << schedule;
    expect_twice(schedule);
  }
  EXPECT_EQ(copies_in(kTwice, "decompose_format(one, A, hyb(1))\ndecompose_format(squares, A, hyb(1, 3))\n"), 4);
  EXPECT_EQ(copies_in(kTwice, "decompose_format(one, A, bsr(2))\ndecompose_format(squares, A, bsr(4))\n"), 2);
}

// A copy that is made in each run holds what its buffer had there.
TEST(Decompose, CopiesOfWhatChangesBetweenAreMadeAnew) {
  const std::string text = R"(program steps(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  A = buffer(I, J): fp32
  C = buffer(I): fp32
  D = buffer(I): fp32
  iterate one(I, J) "SR" as (i, j):
    init:
      C[i] = 0.0
    C[i] = C[i] + A[i, j]
  iterate step(I, J) "SS" as (i, j):
    A[i, j] = A[i, j] * 2.0
  iterate two(I, J) "SR" as (i, j):
    init:
      D[i] = 0.0
    D[i] = D[i] + A[i, j]
)";
  const std::string still = replaced(replaced(text, "A[i, j] = A[i, j] * 2.0", "E[i, j] = A[i, j] * 2.0"),
                                     "  C = buffer", "  E = temporary(I, J): fp32\n  C = buffer");
  for (const char* schedule : {"decompose_format(one, A, bsr(2))\ndecompose_format(two, A, bsr(2))\n",
                               "decompose_format(two, A, bsr(2))\ndecompose_format(one, A, bsr(2))\n"}) {
    EXPECT_EQ(copies_in(text, schedule), 2) << schedule;
    EXPECT_EQ(copies_in(still, schedule), 1) << schedule;
    const Operator op = compile(parse(text), schedule);
    const Matrix a = random_matrix(Shape::power_law, 977);
    Values values = a.values, c(static_cast<size_t>(a.rows)), d(static_cast<size_t>(a.rows));
    std::vector<double> want_c(c.size(), 0), want_d(d.size(), 0);
    const Coo coo = a.coo();
    for (size_t e = 0; e < values.size(); ++e) {
      want_c[static_cast<size_t>(coo.rows[e])] += values[e];
      want_d[static_cast<size_t>(coo.rows[e])] += 2 * values[e];
    }
    const RunArguments arguments{.structures = {{"J", a.structure()}},
                                 .buffers = {{"A", {values.data(), DType::fp32, {static_cast<int64_t>(values.size())}}},
                                             {"C", {c.data(), DType::fp32, {a.rows}}},
                                             {"D", {d.data(), DType::fp32, {a.rows}}}}};
    for (const Stage stage : {Stage::one, Stage::two, Stage::three}) {
      expect_close(interpret_operator(op, arguments, stage).buffers.at("C"), want_c, 1e-6, schedule);
      expect_close(interpret_operator(op, arguments, stage).buffers.at("D"), want_d, 1e-6, schedule);
    }
    op.run(arguments);
    expect_close(doubles(c), want_c, 1e-5, schedule);
    expect_close(doubles(d), want_d, 1e-5, schedule);
  }
}

// What runs once for new values is copied once for them, too.
TEST(Decompose, CopiesOfWhatIsPreparedArePrepared) {
  const std::string text = R"(program prepared(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  W = buffer(I, J): fp32
  A = temporary(I, J): fp32
  D = buffer(I): fp32
  preprocess step(I, J) "SS" as (i, j):
    A[i, j] = W[i, j] * 2.0
  iterate sums(I, J) "SR" as (i, j):
    init:
      D[i] = 0.0
    D[i] = D[i] + A[i, j]
)";
  const Matrix a = random_matrix(Shape::power_law, 978);
  Values values = a.values, d(static_cast<size_t>(a.rows));
  std::vector<double> want(d.size(), 0);
  for (size_t e = 0; e < values.size(); ++e) want[static_cast<size_t>(a.coo().rows[e])] += 2 * values[e];
  const RunArguments arguments{.structures = {{"J", a.structure()}},
                               .buffers = {{"W", {values.data(), DType::fp32, {static_cast<int64_t>(values.size())}}},
                                           {"D", {d.data(), DType::fp32, {a.rows}}}}};
  const Operator op = compile(parse(text), "decompose_format(sums, A, bsr(2))\n");
  expect_contains(op.text("stage1"), "preprocess copy_A_bsr_2(", "copy");
  for (const Stage stage : {Stage::source, Stage::one, Stage::two, Stage::three})
    expect_close(interpret_operator(op, arguments, stage).buffers.at("D"), want, 1e-6, "prepared");
}

TEST(Decompose, PartsThatAreNoMatrixInCsrAreRefused) {
  expect_contains(
      refusal([] {
        compile(parse(kSpmmProgram),
                "decompose_format(csrmm, A, bsr(2))\ndecompose_format(csrmm_bsr_2, A_bsr_2, csr())\n");
      }),
      "line 2, column 1: decompose_format(csrmm_bsr_2, A_bsr_2): required: a matrix on a dense and a sparse", "blocks");
}

}  // namespace
}  // namespace weft::sparse::test::decompose
