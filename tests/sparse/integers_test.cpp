// Integer arithmetic in programs, at every stage and compiled. Division has Python's meaning whatever the signs; by 0
// it is an error of the run, and 0 where that goes on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sparse/operator.h"
#include "sparse/stage1/parse.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test::integers {
namespace {

// Z[i] of X[i], Y[i] and parameters; all of int64.
std::string program_of(const std::string& value, const std::string& where = "") {
  return fmt::format(R"(program p(n, q):
  I = dense_fixed(n)
  X = buffer(I): int64
  Y = buffer(I): int64
  Z = buffer(I): int64
  iterate a(I) "S" as (i){}:
    Z[i] = {}
)",
                     where, value);
}

using Integers = std::vector<int64_t>;

struct Inputs {
  Integers x, y, z;
  int64_t q = 0;
  Inputs(Integers a, Integers b, int64_t parameter = 0)
      : x(std::move(a)), y(std::move(b)), z(x.size(), -99), q(parameter) {}
  RunArguments arguments(bool has_q = true) {
    const auto n = static_cast<int64_t>(x.size());
    RunArguments all{.buffers = {{"X", {x.data(), DType::int64, {n}}},
                                 {"Y", {y.data(), DType::int64, {n}}},
                                 {"Z", {z.data(), DType::int64, {n}}}}};
    if (has_q) all.scalars["q"] = q;
    return all;
  }
};

void expect_values(const std::string& text, const std::string& schedule, Inputs run, const Integers& want,
                   const std::map<std::string, int64_t>& set = {}) {
  const Operator op = compile(parse(text), schedule, Device::cpu(), {.set = set});
  const RunArguments arguments = run.arguments(set.empty());
  for (const Stage stage : interpreted_stages(Stage::source)) {
    const std::vector<double> got = interpret_operator(op, arguments, stage).buffers.at("Z");
    EXPECT_EQ(Integers(got.begin(), got.end()), want) << text << schedule << "stage " << static_cast<int>(stage);
  }
  op.run(arguments);
  EXPECT_EQ(run.z, want) << text << schedule;
}

const char* const kSchedules[] = {"", "lower()\nparallel(a.i)\n", "lower()\no, v = split(a.i, 4)\nvectorize(v)\n"};

TEST(Integers, BelowZeroAreCountedOnce) {
  const Inputs run({7, 8, 9, 10}, {2, 0, 3, 0}, 5);
  for (const char* schedule : kSchedules) {
    expect_values(program_of("i - (i + 1)"), schedule, run, {-1, -1, -1, -1});
    expect_values(program_of("(q - 3) - q"), schedule, run, {-3, -3, -3, -3});
    expect_values(program_of("i * 0 - 7 - Y[i] * 0"), schedule, run, {-7, -7, -7, -7});
    expect_values(program_of("X[i + (i - (i + 1))]"), schedule, run, {0, 7, 8, 9});
    expect_values(program_of("q - 8", " where i > 3 - q"), schedule, run, {-3, -3, -3, -3}, {{"q", 5}});
  }
}

TEST(Integers, AreOf64BitsWhereAllOfThemAreLiterals) {
  const Inputs run({7, -8, 9, 0}, {2, 0, 3, 0}, 5);
  expect_values(program_of("select(X[i] > 0, 3, -4) * 2000000000"), "", run,
                {6000000000, -8000000000, 6000000000, -8000000000});
  expect_values(program_of("-q * 1000000000 * abs(-q)"), "", run,
                {-25000000000, -25000000000, -25000000000, -25000000000}, {{"q", 5}});
  expect_values(program_of("max(min(X[i], 3), -2) + abs(Y[i] - 2)"), "", run, {3, 0, 4, 2});
}

// Of an integer and a real, or of reals of two widths, min and max choose between reals.
TEST(Integers, MeetRealsInMinAndMax) {
  for (const char* type : {"fp32", "fp64"}) {
    const std::string text = fmt::format(R"(program p(n):
  I = dense_fixed(n)
  X = buffer(I): fp32
  Z = buffer(I): {}
  iterate a(I) "S" as (i):
    Z[i] = max(min(X[i], 2.75), 0.5) + min(i, X[i]) * 100.0
)",
                                         type);
    Values x = {0.25, 1.5, 9.5, 2.5};
    std::vector<float> single(4);
    std::vector<double> twice(4);
    const bool is_single = std::string(type) == "fp32";
    const RunArguments arguments{.buffers = {{"X", {x.data(), DType::fp32, {4}}},
                                             {"Z", is_single ? TensorView(single.data(), DType::fp32, {4})
                                                             : TensorView(twice.data(), DType::fp64, {4})}}};
    compile(parse(text)).run(arguments);
    EXPECT_EQ(values_of(arguments.buffers.at("Z")), (std::vector<double>{0.5, 101.5, 202.75, 252.5})) << type;
  }
}

TEST(Divisions, RoundDownWhateverTheSigns) {
  const Inputs run({7, 7, -7, -7, 6, -6, 0, 7, -8}, {2, -2, 2, -2, -3, 3, -5, 7, 3});
  for (const char* schedule : kSchedules) {
    expect_values(program_of("X[i] // Y[i]"), schedule, run, {3, -4, -4, 3, -2, -2, 0, 1, -3});
    expect_values(program_of("X[i] % Y[i]"), schedule, run, {1, -1, 1, -1, 0, 0, 0, 0, 1});
    expect_values(program_of("X[i] // -2"), schedule, run, {-4, -4, 3, 3, -3, 3, 0, -4, 4});
    expect_values(program_of("X[i] % -2"), schedule, run, {-1, -1, -1, -1, 0, 0, 0, -1, 0});
    expect_values(program_of("X[i] // (q - 3) * (q - 3) + X[i] % (q - 3)"), schedule, run, run.x);
    expect_values(program_of("X[i] // (q - 3)"), schedule, run, {-3, -3, 2, 2, -2, 2, 0, -3, 2}, {{"q", 0}});
  }
}

TEST(Divisions, ByZeroAreErrorsThatSayWhereAndGiveZero) {
  Inputs run({7, 8, 9, 10}, {2, 0, 3, 0});
  for (const char* schedule : kSchedules)
    for (const char* value : {"X[i] // Y[i]", "X[i] % Y[i]"}) {
      expect_failure(program_of(value), schedule, run.arguments(),
                     fmt::format("p: iteration 'a' divides by 0 at (i = 1): {};", value));
      const bool is_rest = std::string(value).find('%') != std::string::npos;
      EXPECT_EQ(run.z, (is_rest ? Integers{1, 0, 0, 0} : Integers{3, 0, 3, 0})) << schedule;
    }
}

// What is multiplied by 0 is gone from the text, and its iterator from its place.
TEST(Divisions, NameIteratorsInTheOrderOfTheirText) {
  const auto text_of = [](const char* value) {
    return fmt::format(
        "program p(n):\n  I = dense_fixed(n)\n  J = dense_fixed(2)\n  D = buffer(J): int64\n  Z = buffer(I, J): int64\n"
        "  iterate a(I, J) \"SS\" as (i, j):\n    Z[i, j] = {}\n",
        value);
  };
  Integers d = {-1, 0}, z(6);
  const RunArguments arguments{
      .buffers = {{"D", {d.data(), DType::int64, {2}}}, {"Z", {z.data(), DType::int64, {3, 2}}}}};
  for (const char* schedule : {"", "sparse_reorder(a, J, I)\n", "lower()\nreorder(a.j, a.i)\nparallel(a.j)\n"}) {
    expect_failure(text_of("1 // (D[j] + i)"), schedule, arguments, "divides by 0 at (j = 0, i = 1): 1 // (D[j] + i);");
    expect_failure(text_of("1 // (i + D[j])"), schedule, arguments, "divides by 0 at (i = 0, j = 1): 1 // (i + D[j]);");
    expect_failure(text_of("(0 * j) // (i + D[j])"), schedule, arguments,
                   "divides by 0 at (i = 0, j = 1): 0 // (i + D[j]);");
  }
}

TEST(Divisions, ThatDoNotFitAreErrorsToo) {
  constexpr int64_t kLeast = INT64_MIN;
  for (const char* schedule : kSchedules) {
    Inputs run({5, kLeast, kLeast}, {-1, -2, -1});
    const Operator op = compile(parse(program_of("X[i] // Y[i]")), schedule);
    expect_contains(refusal([&] { op.run(run.arguments()); }),
                    "iteration 'a' divides -2^63 by -1, which does not fit 64 bits at (i = 2): X[i] // Y[i]", schedule);
    EXPECT_EQ(run.z, (Integers{-5, int64_t{1} << 62, 0}));
    compile(parse(program_of("X[i] % Y[i]")), schedule).run(run.arguments());
    EXPECT_EQ(run.z, (Integers{0, 0, 0}));
  }
}

TEST(Divisions, CountWhereTheyAreEvaluated) {
  const Inputs run({7, 8, 9, 10}, {2, 0, 3, 0});
  for (const char* schedule : kSchedules) {
    expect_values(program_of("select(Y[i] != 0, X[i] // Y[i], -1)"), schedule, run, {3, -1, 3, -1});
    expect_values(program_of("select(Y[i] == 0 or X[i] // Y[i] < 0, -1, 1)"), schedule, run, {1, -1, 1, -1});
    expect_values(program_of("select(Y[i] > 0 and X[i] % Y[i] == 1, 1, 0)"), schedule, run, {1, 0, 0, 0});
    expect_values(program_of("X[i] // Y[i]", " where Y[i] > 0"), schedule, run, {3, -99, 3, -99});
    expect_values(program_of("X[i] // Y[i]", " where Y[i] != 0"), schedule, run, {3, -99, 3, -99});
    expect_values(program_of("select(q > 0, i // q, 7)"), schedule, run, {7, 7, 7, 7});
    expect_values(program_of("select(q > 0, i // q, 7)"), schedule, run, {7, 7, 7, 7}, {{"q", 0}});
  }
  Inputs fails = run;
  expect_failure(program_of("X[i]", " where X[i] // Y[i] > 2"), "", fails.arguments(),
                 "iteration 'a' divides by 0 at (i = 1): X[i] // Y[i];");
  expect_failure(program_of("select(X[i] // Y[i] > 2, 1, 1)"), "", fails.arguments(), "divides by 0 at (i = 1)");
  // Also where what they decide is certain.
  expect_failure(program_of("select(X[i] // Y[i] % 4 < 4, 1, 2)"), "", fails.arguments(), "divides by 0 at (i = 1)");
  expect_failure(program_of("1", " where X[i] // Y[i] % 4 < 4"), "", fails.arguments(), "divides by 0 at (i = 1)");
}

TEST(Divisions, OfIndicesReadTheFirstElementWhereTheyFail) {
  Inputs run({7, 8, 9, 10}, {1, 1, 1, 1}, 0);
  for (const char* schedule : kSchedules)
    expect_failure(program_of("X[i // q] * 2"), schedule, run.arguments(),
                   "iteration 'a' divides by 0 at (i = 0): i // q;");
  EXPECT_EQ(run.z, (Integers{14, 14, 14, 14}));
  expect_values(program_of("X[i // q] * 2"), "", Inputs({7, 8, 9, 10}, {1, 1, 1, 1}, 2), {14, 14, 16, 16});
  expect_values(program_of("X[i // (q - 3) + 3]"), "", Inputs({7, 8, 9, 10}, {1, 1, 1, 1}, 2), {10, 9, 8, 7});
}

// The same with a parameter that is fixed: the compiler makes all of its texts, and the run fails.
TEST(Divisions, ByAParameterThatIsFixedAt0) {
  Inputs run({7, 8, 9, 10}, {1, 1, 1, 1});
  const std::string text = program_of("select(Y[i] > 0, X[i // q], 0)");
  for (const char* stage : {"stage1", "stage2", "stage3", "code", "cuda"})
    EXPECT_FALSE(
        compile(parse(text), Device::cpu(), {.set = {{"q", 0}}, .stop_after = "generate"}).text(stage).empty());
  expect_failure(text, "", run.arguments(false), "iteration 'a' divides by 0 at (i = 0): i // 0;", {{"q", 0}});
  // What divides by 0 wherever it computes is refused before.
  for (const std::string& certain : {program_of("X[i // q]"), program_of("X[i] % q")})
    expect_contains(refusal([&] {
                      compile(parse(certain), Device::cpu(), {.set = {{"q", 0}}});
                    }),
                    "line 6, column 11: iteration 'a' divides by 0: ", certain);
}

// Of n = 0 columns none is computed, however n is given.
TEST(Divisions, OfLoopsWithoutIterationAreNone) {
  const auto program = [](const char* init) {
    return fmt::format(R"(program p(m, n):
  I = dense_fixed(m)
  J = dense_fixed(n)
  X = buffer(I, J): fp32
  Y = buffer(I): fp32
  iterate sums(I, J) "SR" as (i, j):
    init:
      Y[i] = {}
    Y[i] = Y[i] + X[i, i % n]
)",
                       init);
  };
  for (const bool is_fixed : {false, true}) {
    CompileOptions options;
    if (is_fixed) options.set = {{"n", 0}};
    Values x, y(3, 2.f);
    compile(parse(program("1.0")), Device::cpu(), options)
        .run({.buffers = {{"X", view(x, {3, 0})}, {"Y", view(y, {3})}}});
    EXPECT_EQ(y, Values(3, 1.f)) << is_fixed;
  }
  EXPECT_EQ(refusal([&] { compile(parse(program("real(7 % n)")), Device::cpu(), {.set = {{"m", 0}, {"n", 0}}}); }), "");
  expect_contains(refusal([&] {
                    compile(parse(program("real(7 % n)")), Device::cpu(), {.set = {{"n", 0}}});
                  }),
                  "iteration 'sums' divides by 0: 7 % 0", "init");
}

// A condition that no column changes is asked before them only where there is one.
TEST(Divisions, OfConditionsAreAskedWhereThereIsAPoint) {
  constexpr const char* kText = R"(program p(m, n):
  I = dense_fixed(m)
  J = dense_fixed(n)
  R = buffer(I): int32
  Y = buffer(I, J): fp32
  iterate a(I, J) "SS" as (i, j) where 7 // R[i] > 2:
    Y[i, j] = 1.0
)";
  std::vector<int32_t> r = {2, 0};
  Values none, y(2, 5.f);
  const Operator op = compile(parse(kText));
  op.run({.buffers = {{"R", {r.data(), DType::int32, {2}}}, {"Y", view(none, {2, 0})}}});
  expect_failure(kText, "", {.buffers = {{"R", {r.data(), DType::int32, {2}}}, {"Y", view(y, {2, 1})}}},
                 "divides by 0 at (i = 1): 7 // R[i]");
  EXPECT_EQ(y, (Values{1, 5}));
}

// `at_J` is searched for before the store: not with a coordinate that nobody asks for.
TEST(Divisions, OfSearchedCoordinatesFailWhereTheValueIsAskedFor) {
  constexpr const char* kText = R"(program p(m, n, nnz, q):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  W = buffer(I, J): fp32
  Z = buffer(I): fp32
  iterate a(I) "S" as (i):
    Z[i] = select(q > 0, W[i, 3 // q], 5.0)
)";
  const std::vector<int32_t> indptr = {0, 2, 3}, indices = {1, 3, 1};
  Values w = {10, 20, 30}, z(2);
  RunArguments arguments{.structures = {{"J", csr(2, 4, indptr, indices)}},
                         .buffers = {{"W", {w.data(), DType::fp32, {3}}}, {"Z", {z.data(), DType::fp32, {2}}}}};
  for (const auto& [q, want] : {std::pair<int64_t, Values>{0, {5, 5}}, {1, {20, 0}}, {3, {10, 30}}}) {
    arguments.scalars["q"] = q;
    expect_everywhere(compile(parse(kText)), arguments, "Z", doubles(want), fmt::format("q = {}", q));
  }
}

TEST(Divisions, OfLengthsAreAskedBeforeARun) {
  constexpr const char* kText = R"(program p(n, q):
  I = dense_fixed(n)
  R = dense_fixed(n // q)
  Z = buffer(I): int64
  iterate a(I, R) "SR" as (i, r):
    init:
      Z[i] = 0
    Z[i] = Z[i] + r
)";
  Integers z(3);
  const auto arguments = [&](int64_t q) {
    return RunArguments{.buffers = {{"Z", {z.data(), DType::int64, {3}}}}, .scalars = {{"q", q}}};
  };
  const Operator op = compile(parse(kText));
  op.run(arguments(1));
  EXPECT_EQ(z, (Integers{3, 3, 3}));
  expect_contains(refusal([&] { op.run(arguments(0)); }), "axis 'R': its length n // q divides by q, which is 0",
                  "run");
  expect_contains(refusal([&] {
                    compile(parse(kText), Device::cpu(), {.set = {{"q", 0}}});
                  }),
                  "set: the length n // q of axis 'R' divides by 0", "set");
  expect_contains(refusal([] { parse("program p(n):\n  I = dense_fixed(n // 0)\n"); }),
                  "line 2, column 19: n // 0: the divisor is 0", "text");
  const std::string below =
      "program p(n):\n  I = dense_fixed(n)\n  R = dense_fixed(n - 5)\n  Z = buffer(I): int64\n"
      "  iterate a(I, R) \"SR\" as (i, r):\n    Z[i] = Z[i] + r\n";
  expect_contains(refusal([&] {
                    compile(parse(below)).run({.buffers = {{"Z", {z.data(), DType::int64, {3}}}}});
                  }),
                  "axis 'R': n - 5 is -2; 0 and more are allowed", "length below 0");
}

TEST(Divisions, AreReadBackAsEveryStagePrintsThem) {
  for (const auto& [text, set] : {std::pair(program_of("X[i // q] // Y[i] % (i - 2)", " where X[i] % q < 3"), 0),
                                  {program_of("select(X[i] > 0, i // q, 0)"), 1}}) {
    std::map<std::string, int64_t> fixed;
    if (set != 0) fixed["q"] = 0;
    const Operator op = compile(parse(text), Device::cpu(), {.set = fixed, .stop_after = "generate"});
    const Compilation& made = op.impl().made;
    EXPECT_EQ(parse_program(to_text(made.stage1)).stage1, made.stage1);
    EXPECT_EQ(parse_stage2(to_text(made.compute2)).body, made.compute2.body);
    EXPECT_EQ(loop::parse_function(to_text(made.compute3)), made.compute3.function);
    EXPECT_NE(to_text(made.compute2).find("checked("), std::string::npos) << to_text(made.compute2);
  }
  const std::string text = to_text(
      compile(parse(program_of("X[i] // Y[i]")), Device::cpu(), {.stop_after = "generate"}).impl().made.compute2);
  for (const auto& [from, to, says] : {std::tuple("i in I", "i in N", "there is no axis 'N'"),
                                       {", i in I", "", "has 0 iterators and 1 coordinates"}}) {
    std::string wrong = text;
    wrong.replace(wrong.find(from), std::string(from).size(), to);
    expect_contains(refusal([&] { parse_stage2(wrong); }), says, wrong);
  }
}

// Blocks compute at places that the matrix does not store.
TEST(Divisions, AreRefusedInFormatsThatStorePlacesOfNoElement) {
  constexpr const char* kText = R"(program p(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  A = buffer(I, J): fp32
  Y = buffer(N): int32
  Z = buffer(I): fp32
  iterate sums(I, J) "SR" as (i, j):
    init:
      Z[i] = 0.0
    Z[i] = Z[i] + A[i, j] * real(7 // Y[j])
)";
  const auto with = [&](const char* format) {
    return refusal([&] {
      compile(parse(kText), fmt::format("decompose_format(sums, A, {})\n", format), Device::cpu(),
              {.stop_after = "generate"});
    });
  };
  expect_contains(with("bsr(2)"), "also stores places of no element, where Z[i] + A[i, j] * real(7 // Y[j]) may divide",
                  "bsr");
  EXPECT_EQ(with("ell(2), csr()"), "");
}

// Where nobody reads an element, its division would fail no more.
TEST(Divisions, AreNotComputedInline) {
  const auto inlined = [](const char* value) {
    const std::string text = fmt::format(
        "program p(n, q):\n  I = dense_fixed(n)\n  T = temporary(I): int64\n  Z = buffer(I): int64\n"
        "  iterate a(I) \"S\" as (i):\n    T[i] = {}\n  iterate b(I) \"S\" as (i):\n"
        "    Z[i] = select(i > 5, T[i], 0)\n",
        value);
    return refusal(
        [&] { compile(parse(text), "lower()\ncompute_inline(a)\n", Device::cpu(), {.stop_after = "generate"}); });
  };
  expect_contains(inlined("7 // (i - q)"), "compute_inline(a): it divides by what may be 0", "any divisor");
  EXPECT_EQ(inlined("i // 3 - q % 4"), "");
}

// An empty row has no product, and its divisor is not asked.
TEST(Divisions, OfFactorsStayWithinReductions) {
  constexpr const char* kText = R"(program p(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  Y = buffer(I): int32
  A = buffer(I, J): fp32
  Z = buffer(I): fp32
  iterate s(I, J) "SR" as (i, j):
    init:
      Z[i] = 0.0
    Z[i] = Z[i] + A[i, j] * real(7 // Y[i])
)";
  const std::vector<int32_t> indptr = {0, 2, 2}, indices = {0, 1};
  std::vector<int32_t> y = {2, 0};
  Values a = {1, 2}, z(2);
  for (const char* schedule : {"", "lower()\njo, ji = split(s.j, 4)\nrfactor(ji, register)\n"})
    expect_everywhere(compile(parse(kText), schedule),
                      {.structures = {{"J", csr(2, 3, indptr, indices)}},
                       .buffers = {{"Y", {y.data(), DType::int32, {2}}},
                                   {"A", {a.data(), DType::fp32, {2}}},
                                   {"Z", {z.data(), DType::fp32, {2}}}}},
                      "Z", {9, 0}, schedule);
}

// Real division is that of IEEE 754.
TEST(Divisions, OfRealsFailNowhere) {
  constexpr const char* kText =
      "program p(n):\n  I = dense_fixed(n)\n  X = buffer(I): fp32\n  Z = buffer(I): fp32\n"
      "  iterate a(I) \"S\" as (i):\n    Z[i] = X[i] / X[0]\n";
  Values x = {0, 1, -1}, z(3);
  compile(parse(kText)).run({.buffers = {{"X", {x.data(), DType::fp32, {3}}}, {"Z", {z.data(), DType::fp32, {3}}}}});
  EXPECT_NE(z[0], z[0]);
  EXPECT_EQ(z[1], INFINITY);
  EXPECT_EQ(z[2], -INFINITY);
}

}  // namespace
}  // namespace weft::sparse::test::integers
