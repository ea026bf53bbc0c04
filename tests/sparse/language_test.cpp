// What docs/sparse.md says of the language: names, absent coordinates, `where` and init, what is not finite.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "sparse/operators/gather_schedules.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"
#include "weft/error.h"

namespace weft::sparse::test {
namespace {

TEST(Names, AreAnyInEveryRole) {
  constexpr int64_t kFeat = 6;
  const Matrix a = random_matrix(Shape::power_law, 3);
  const Values b = random_values(static_cast<size_t>(a.cols * kFeat), 4);
  Values c(static_cast<size_t>(a.rows * kFeat));
  const Operator op = compile(parse(kNamedAsWords));
  expect_everywhere(op,
                    {.structures = {{"J", a.structure()}},
                     .buffers = {{"float", a.values_view()},
                                 {"weft_find", {b.data(), DType::fp32, {a.cols, kFeat}}},
                                 {"scalars", {c.data(), DType::fp32, {a.rows, kFeat}}}}},
                    "scalars", dense_spmm(a, b, kFeat), "words");
  const std::string cuda = op.text("cuda");
  for (const char* declared :
       {"float* __restrict__ scalars_", "const float* __restrict__ float_", "long long weft_integer_int_",
        "const int* __restrict__ worker_", "for (int double_ = 0;", "own_weft_find_"})
    EXPECT_NE(cuda.find(declared), cuda.npos) << declared << "\n" << cuda;
}

// Each as a buffer and as the variable of a loop.
TEST(Names, OfMacrosAndOfCompilersAreAnyToo) {
  const std::vector<std::string> names = {"_Bool",  "__LINE__",      "__builtin_exp", "linux",     "NULL",
                                          "weft_0", "weft_failures", "Weft",          "WEFT_BF16", "true",
                                          "this",   "asm",           "blockIdx",      "co_await",  "i_end"};
  std::string text = "program p(n):\n  N = dense_fixed(n)\n", sum, nests;
  for (const std::string& name : names) {
    text += fmt::format("  {} = buffer(N): fp32\n", name);
    sum += (sum.empty() ? "" : " + ") + name + "[i]";
    nests += fmt::format("  iterate of{0}(N) \"S\" as ({0}_{0}):\n    Y[{0}_{0}] = Y[{0}_{0}] * 2.0\n", name);
  }
  text += "  Y = buffer(N): fp32\n  iterate sum(N) \"S\" as (i):\n    Y[i] = " + sum + "\n" + nests;
  Values x = {1, 2, 3}, y(3);
  RunArguments arguments{.buffers = {{"Y", {y.data(), DType::fp32, {3}}}}};
  for (const std::string& name : names) arguments.buffers[name] = {x.data(), DType::fp32, {3}};
  const auto count = static_cast<double>(names.size());
  const double times = count * std::ldexp(1., static_cast<int>(names.size()));
  expect_everywhere(compile(parse(text)), arguments, "Y", {times, 2 * times, 3 * times}, text);
}

TEST(Prefetch, LeavesOutWhatWouldHaveToBeSearchedFor) {
  constexpr int64_t kFeat = 3;
  const Matrix a = random_matrix(Shape::uniform, 5);
  const Values x = random_values(static_cast<size_t>(a.rows * kFeat), 6),
               y = random_values(static_cast<size_t>(a.cols * kFeat), 7);
  Values o(a.values.size());
  const RunArguments arguments{.structures = {{"J", a.structure()}},
                               .buffers = {{"A", a.values_view()},
                                           {"X", {x.data(), DType::fp32, {a.rows, kFeat}}},
                                           {"Y", {y.data(), DType::fp32, {a.cols, kFeat}}},
                                           {"O", {o.data(), DType::fp32, {static_cast<int64_t>(o.size())}}}}};
  for (const char* loop : {"sddmm_gather.i", "sddmm_gather.j", "sddmm.io"}) {
    const std::string schedule =
        fmt::format("decompose_format(sddmm, A, bsr(2))\nlower()\nannotate({}, prefetch, 2)\n", loop);
    expect_everywhere(compile(parse(kSddmmProgram), schedule), arguments, "O", dense_sddmm(a, x, y, kFeat), schedule);
  }
}

// Nor what stands in memory of the nest, which is filled further on; rows of a fused loop that are read are known.
TEST(Prefetch, LeavesOutWhatIsKnownFurtherOn) {
  constexpr int64_t kFeat = 3;
  const Matrix a = random_matrix(Shape::uniform, 10);
  const Values b = random_values(static_cast<size_t>(a.cols * kFeat), 11);
  Values c(static_cast<size_t>(a.rows * kFeat));
  const RunArguments arguments{.structures = {{"J", a.structure()}},
                               .buffers = {{"A", a.values_view()},
                                           {"B", {b.data(), DType::fp32, {a.cols, kFeat}}},
                                           {"C", {c.data(), DType::fp32, {a.rows, kFeat}}}}};
  for (const std::string lines : {"lower()\ncache_read(csrmm.j, j_indices, register)\nannotate(csrmm.j, prefetch, 2)\n",
                                  "sparse_fuse(csrmm, I, J)\nlower()\nannotate(csrmm.i_j, prefetch, 2)\n",
                                  "sparse_fuse(csrmm, I, J)\nlower()\nmaterialise_rows(csrmm.i_j)\n"
                                  "annotate(csrmm.i_j, prefetch, 2)\n"})
    expect_everywhere(compile(parse(example("spmm_hyb")), lines), arguments, "C", dense_spmm(a, b, kFeat), lines);
}

// What a text fetches, by the loop over E.
std::string fetched(const std::string& value, const std::string& more = "") {
  const std::string text = "program p(e, n, m):\n  E = dense_fixed(e)\n  N = dense_fixed(n)\n  L = dense_fixed(m)\n" +
                           std::string("  T = buffer(E): int32\n  X = buffer(N): fp32\n  Y = buffer(E, L): fp32\n") +
                           "  iterate it(E, L) \"SS\" as (i, l):\n    Y[i, l] = " + value + "\nschedule:\n  lower()\n" +
                           more + "  annotate(it.i, prefetch, 2)\n";
  const std::string code = compile(parse(text), Device::cpu(), {.stop_after = "generate"}).text("code");
  const size_t at = code.find("__builtin_prefetch", code.find("extern \"C\""));
  if (at == code.npos) return "";
  const size_t line = code.rfind("if (", at);
  return code.substr(line, code.find(";", at) + 1 - line);
}

TEST(Prefetch, AsksWhetherPlacesAreThereOnBothSides) {
  EXPECT_EQ(fetched("X[T[i]]"), "if (i + 2 < e) {\n      __builtin_prefetch(X + (long long)T[i + 2]);");
  EXPECT_NE(fetched("X[T[i - 3]]").find("if (i - 1 >= 0 && i - 1 < e) {"), std::string::npos);
}

TEST(Prefetch, ComputesNothingThatMayFail) {
  EXPECT_EQ(fetched("X[100 // T[i]]"), "");
  EXPECT_NE(fetched("X[T[i] // 4]"), "");
}

// Whatever is certainly absent reads as 0, at any depth.
TEST(Absent, ReadsAsZeroWhereItIsCertain) {
  const Matrix a = random_matrix(Shape::uniform, 8);
  const Values x = random_values(static_cast<size_t>(a.rows), 9);
  Values y(static_cast<size_t>(a.rows));
  const RunArguments arguments{
      .structures = {{"J", a.structure()}},
      .buffers = {
          {"A", a.values_view()}, {"X", {x.data(), DType::fp32, {a.rows}}}, {"Y", {y.data(), DType::fp32, {a.rows}}}}};
  for (const char* absent : {"A[m + 2, i]", "A[m, 0]", "A[-1 - i, i]", "A[i, n]", "A[i, n + 1]", "A[i, -1]", "X[m]",
                             "X[i + m]", "X[-1]", "A[m + i, n + i]"}) {
    const std::string text = std::string("program p(m, n, nnz):\n  I = dense_fixed(m)\n") +
                             "  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)\n" +
                             "  A = buffer(I, J): fp32\n  X = buffer(I): fp32\n  Y = buffer(I): fp32\n" +
                             "  iterate it(I) \"S\" as (i):\n    Y[i] = X[i] + " + absent + " * 2.0\n";
    expect_everywhere(compile(parse(text)), arguments, "Y", doubles(x), absent);
    // A parameter that is known makes it certain elsewhere, too.
    expect_everywhere(compile(parse(text), Device::cpu(), {.set = {{"m", a.rows}, {"n", a.cols}}}), arguments, "Y",
                      doubles(x), absent);
  }
}

// What is read under a condition that an absent one makes false is never reached, and refuses no program.
TEST(Absent, MakesConditionsThatNeverHold) {
  std::vector<int32_t> t = {2, 1, 0};
  Values x = {5, 6, 7}, y(3);
  const RunArguments arguments{.buffers = {{"T", {t.data(), DType::int32, {3}}},
                                           {"X", {x.data(), DType::fp32, {3}}},
                                           {"Y", {y.data(), DType::fp32, {3}}}}};
  for (const char* value : {"select(n <= T[n], X[i], X[n])", "select(i + 1 <= T[n], X[i + 1], 0.0)",
                            "select(i < T[n], X[T[n] - 1], 0.0)", "select(n + i < 1, X[i + 2], 0.0)"})
    for (const bool is_set : {false, true}) {
      const std::string text =
          std::string("program p(n):\n  N = dense_fixed(n)\n  T = buffer(N): int32\n  X = buffer(N): fp32\n") +
          "  Y = buffer(N): fp32\n  iterate it(N) \"S\" as (i):\n    Y[i] = " + value + "\n";
      expect_everywhere(
          compile(parse(text), Device::cpu(),
                  {.set = is_set ? std::map<std::string, int64_t>{{"n", 3}} : std::map<std::string, int64_t>{}}),
          arguments, "Y", {0, 0, 0}, value);
    }
}

// An index that is absent is 0, and what it leads to is read there.
TEST(Absent, IndicesAreZero) {
  std::vector<int32_t> t = {2, 1, 0};
  Values x = {5, 6, 7}, y(3);
  const std::string text =
      "program p(n):\n  N = dense_fixed(n)\n  T = buffer(N): int32\n  X = buffer(N): fp32\n"
      "  Y = buffer(N): fp32\n  iterate it(N) \"S\" as (i):\n    Y[i] = X[T[i + n]] + X[T[i]]\n";
  expect_everywhere(compile(parse(text)),
                    {.buffers = {{"T", {t.data(), DType::int32, {3}}},
                                 {"X", {x.data(), DType::fp32, {3}}},
                                 {"Y", {y.data(), DType::fp32, {3}}}}},
                    "Y", {12, 11, 10}, "index");
}

// Conditions without a reduction iterator count for init, too.
TEST(Where, LeavesOutInitWhereItUsesNoReduction) {
  const Matrix a{.rows = 3, .cols = 3, .indptr = {0, 2, 2, 3}, .indices = {0, 2, 1}, .values = {5, -6, 7}};
  Values s(3);
  const RunArguments arguments{.structures = {{"J", a.structure()}},
                               .buffers = {{"A", a.values_view()}, {"S", {s.data(), DType::fp32, {3}}}}};
  const double kept = std::nan("");
  const std::pair<const char*, std::vector<double>> cases[] = {{"i < 2", {0, 1, kept}},
                                                               {"i + j < 3", {0, 1, 1}},
                                                               {"A[i, j] > 0.0", {6, 1, 8}},
                                                               {"i > 0, A[i, j] > 0.0", {kept, 1, 8}}};
  for (const auto& [condition, want] : cases)
    for (const char* schedule : {"", "lower()\ndecompose_reduction(sums.j)\nparallel(sums.i)\n"})
      expect_everywhere(compile(parse(fmt::format(R"(program sums(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  A = buffer(I, J): fp32
  S = buffer(I): fp32
  iterate sums(I, J) "SR" as (i, j) where {}:
    init:
      S[i] = 1.0
    S[i] = S[i] + A[i, j]
)",
                                                  condition)),
                                schedule),
                        arguments, "S", want, condition);
}

// Places of no element are zeros, which something that is not finite turns into NaN.
TEST(NotFinite, SpreadsOverThePlacesThatAFormatStores) {
  constexpr int32_t kCol = 3;
  // Column 3 has elements in the rows 0 and 5.
  const Matrix a{.rows = 7,
                 .cols = 6,
                 .indptr = {0, 2, 3, 3, 4, 6, 7, 8},
                 .indices = {0, 3, 2, 5, 2, 4, 3, 0},
                 .values = {1, 2, 3, 4, 5, 6, 7, 8}};
  Values b(static_cast<size_t>(a.cols), 1.f), c(static_cast<size_t>(a.rows));
  b[kCol] = std::numeric_limits<float>::infinity();
  const auto any = [&](const std::function<bool(int32_t row, int32_t col)>& holds) {
    for (int32_t row = 0; row < a.rows; ++row)
      for (int32_t p = a.indptr[static_cast<size_t>(row)]; p < a.indptr[static_cast<size_t>(row) + 1]; ++p)
        if (holds(row, a.indices[static_cast<size_t>(p)])) return true;
    return false;
  };
  const auto has = [&](int32_t row, int32_t col) {
    return any([&](int32_t i, int32_t j) { return i == row && j == col; });
  };
  const std::pair<const char*, std::function<bool(int32_t row)>> cases[] = {
      {"csr()", {}},
      {"csc()", {}},
      {"coo()", {}},
      {"dcsr()", {}},
      {"ell(2)", {}},
      {"hyb(2, 1)", {}},
      {"bsr(2)", [&](int32_t row) { return any([&](int i, int j) { return i / 2 == row / 2 && j / 2 == kCol / 2; }); }},
      {"dbsr(2)",
       [&](int32_t row) { return any([&](int i, int j) { return i / 2 == row / 2 && j / 2 == kCol / 2; }); }},
      {"sr_bcrs(4, 2)", [&](int32_t row) { return any([&](int i, int j) { return i / 4 == row / 4 && j == kCol; }); }},
      {"dia()", [&](int32_t row) { return any([&](int i, int j) { return j - i == kCol - row; }); }}};
  for (const auto& [format, spreads] : cases) {
    std::vector<double> want(static_cast<size_t>(a.rows), 0);
    for (int32_t row = 0; row < a.rows; ++row) {
      double& sum = want[static_cast<size_t>(row)];
      for (int32_t p = a.indptr[static_cast<size_t>(row)]; p < a.indptr[static_cast<size_t>(row) + 1]; ++p)
        sum += static_cast<double>(a.values[static_cast<size_t>(p)]) *
               b[static_cast<size_t>(a.indices[static_cast<size_t>(p)])];
      if (spreads && spreads(row) && !has(row, kCol)) sum = std::nan("");
    }
    const Operator op = compile(parse(example("spmm_hyb")), fmt::format("decompose_format(csrmm, A, {})\n", format));
    op.run({.structures = {{"J", a.structure()}},
            .buffers = {{"A", a.values_view()},
                        {"B", {b.data(), DType::fp32, {a.cols, 1}}},
                        {"C", {c.data(), DType::fp32, {a.rows, 1}}}}});
    for (size_t row = 0; row < want.size(); ++row)
      EXPECT_TRUE(std::isnan(want[row]) ? std::isnan(c[row]) : c[row] == want[row])
          << format << ", row " << row << ": " << c[row] << " instead of " << want[row];
  }
}

}  // namespace
}  // namespace weft::sparse::test
