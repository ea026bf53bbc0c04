// Functions of reals, real parameters and fp16: what compiled code computes of them, beside exact arithmetic.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/fp16.h"
#include "sparse/operator.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/stage1/parse.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

std::string elementwise(const std::string& value, const char* dtype) {
  return fmt::format(R"(program p(n):
  I = dense_fixed(n)
  X = buffer(I): {0}
  Y = buffer(I): {0}
  Z = buffer(I): {0}
  iterate a(I) "S" as (i):
    Z[i] = {1}
)",
                     dtype, value);
}

// Numbers of every exponent and sign, those that functions have of their own, and many between -4 and 4.
template <class Real>
std::vector<Real> numbers(uint32_t seed) {
  using Bits = std::conditional_t<sizeof(Real) == 4, uint32_t, uint64_t>;
  using Limits = std::numeric_limits<Real>;
  std::vector<Real> list = {
      0, 1, 2, 3, Real(0.5), Limits::min(), Limits::denorm_min(), Limits::max(), Limits::infinity()};
  std::mt19937_64 random(seed);
  for (int i = 0; i < 40000; ++i) list.push_back(std::bit_cast<Real>(static_cast<Bits>(random())));
  for (int i = 0; i < 40000; ++i) list.push_back(static_cast<Real>(static_cast<double>(random() >> 11) * 0x1p-50 - 4));
  for (int i = 0; i < 20000; ++i)
    list.push_back(static_cast<Real>(static_cast<double>(random() >> 11) * 0x1p-42 - 1000));
  for (int i = 0; i < 1000; ++i) list.push_back(static_cast<Real>(i % 40 - 20));
  for (size_t i = 0; i < 9; ++i) list.push_back(-list[i]);
  list.push_back(Limits::quiet_NaN());
  std::shuffle(list.begin(), list.end(), random);
  return list;
}

template <class Real>
std::vector<Real> computed(const std::string& value, const char* schedule, std::vector<Real> x, std::vector<Real> y) {
  const bool is_single = sizeof(Real) == 4;
  const DType dtype = is_single ? DType::fp32 : DType::fp64;
  std::vector<Real> z(x.size());
  const auto n = static_cast<int64_t>(x.size());
  compile(parse(elementwise(value, is_single ? "fp32" : "fp64")), schedule)
      .run({.buffers = {{"X", {x.data(), dtype, {n}}}, {"Y", {y.data(), dtype, {n}}}, {"Z", {z.data(), dtype, {n}}}}});
  return z;
}

// How many of the numbers of the type lie from one result to the exact one; 0 where both are NaN or the same infinity.
template <class Real>
double ulps(Real got, long double exact) {
  if (std::isnan(exact) || std::isnan(got)) return std::isnan(exact) && std::isnan(got) ? 0 : 1e30;
  const Real nearest = static_cast<Real>(exact);
  if (nearest == got)
    return std::fabs(static_cast<double>(exact)) == 0 ? (std::signbit(got) != std::signbit(exact) ? 1e30 : 0) : 0.5;
  if (std::isinf(got) || std::isinf(nearest))  // beside the greatest number
    return std::fabs(std::isinf(got) ? nearest : got) == std::numeric_limits<Real>::max() ? 1 : 1e30;
  const int exponent = std::max(std::ilogb(nearest == 0 ? std::numeric_limits<Real>::denorm_min() : nearest),
                                std::numeric_limits<Real>::min_exponent - 1);
  const long double unit = std::ldexp(1.0L, exponent - std::numeric_limits<Real>::digits + 1);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / unit);
}

struct FunctionCase {
  const char* text;
  long double (*exact)(long double x, long double y);
  double single, twice;     // bounds in ulps, of fp32 and fp64
  double per_exponent = 0;  // of fp64, times |y ln x|
};
const FunctionCase kFunctions[] = {
    {"exp(X[i])", [](long double x, long double) { return std::exp(x); }, 2, 2},
    {"log(X[i])", [](long double x, long double) { return std::log(x); }, 2, 2},
    {"tanh(X[i])", [](long double x, long double) { return std::tanh(x); }, 4, 4},
    {"sigmoid(X[i])",
     [](long double x, long double) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }, 4, 4},
    {"pow(X[i], Y[i])", [](long double x, long double y) { return std::pow(x, y); }, 1, 4, 2},
    {"sqrt(X[i])", [](long double x, long double) { return std::sqrt(x); }, 0.5, 0.5},
};

template <class Real>
void expect_within(const FunctionCase& c, const char* schedule, double bound) {
  const std::vector<Real> x = numbers<Real>(1), y = numbers<Real>(2), got = computed<Real>(c.text, schedule, x, y);
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double error = ulps(got[i], c.exact(x[i], y[i]));
    if (c.per_exponent > 0 && sizeof(Real) == 8 && error < 1e20) {
      const auto exponent = static_cast<double>(std::fabs(y[i] * std::log(std::fabs(static_cast<long double>(x[i])))));
      if (exponent < 800) error *= bound / (bound + c.per_exponent * exponent);
    }
    if (error > worst) worst = error, at = i;
  }
  EXPECT_LE(worst, bound) << c.text << schedule << " of " << x[at] << ", " << y[at] << " is " << got[at];
}

TEST(Functions, LieWithinTheirBounds) {
  for (const FunctionCase& c : kFunctions)
    for (const char* schedule : {"", "lower()\no, v = split(a.i, 16)\nvectorize(v)\nparallel(o)\n"}) {
      expect_within<float>(c, schedule, c.single);
      expect_within<double>(c, schedule, c.twice);
    }
}

// What the C standard says of numbers that a function has of its own.
TEST(Functions, OfSpecialNumbersAreThoseOfTheStandard) {
  const float inf = INFINITY, nan = NAN;
  const Values list = {0.f,  -0.f, 1.f,       -1.f,       0.5f,  -0.5f, 2.f,  -2.f, 3.f,
                       -3.f, 2.5f, 8388609.f, 16777216.f, 1e30f, inf,   -inf, nan};
  Values x, y;
  for (const float a : list)
    for (const float b : list) x.push_back(a), y.push_back(b);
  const Values pow = computed<float>("pow(X[i], Y[i])", "", x, y), log = computed<float>("log(X[i])", "", x, y),
               tanh = computed<float>("tanh(X[i])", "", x, y), sigmoid = computed<float>("sigmoid(X[i])", "", x, y);
  const auto expect_same = [](float got, float want, float a, float b, const char* what) {
    const bool same = std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want);
    const bool close = std::isfinite(want) && std::fabs(got - want) <= 4e-7f * std::fabs(want);
    EXPECT_TRUE(same || close) << what << " of " << a << ", " << b << ": " << got << ", not " << want;
  };
  for (size_t i = 0; i < x.size(); ++i) {
    expect_same(pow[i], std::pow(x[i], y[i]), x[i], y[i], "pow");
    expect_same(log[i], std::log(x[i]), x[i], 0, "log");
    expect_same(tanh[i], std::tanh(x[i]), x[i], 0, "tanh");
    expect_same(sigmoid[i], 1 / (1 + std::exp(-x[i])), x[i], 0, "sigmoid");
  }
}

TEST(Functions, AreThoseOfTheInterpreterAtEveryStage) {
  Values x = {0.25f, 1.f, 3.f, 0.001f}, y = {2.f, -1.f, 0.5f, 0.f}, z(4);
  const RunArguments arguments{.buffers = {{"X", {x.data(), DType::fp32, {4}}},
                                           {"Y", {y.data(), DType::fp32, {4}}},
                                           {"Z", {z.data(), DType::fp32, {4}}}}};
  std::vector<double> want;
  for (size_t i = 0; i < 4; ++i)
    want.push_back(std::pow(x[i], y[i]) + std::log(x[i]) * std::tanh(y[i]) - 1 / (1 + std::exp(-y[i])));
  expect_everywhere(compile(parse(elementwise("pow(X[i], Y[i]) + log(X[i]) * tanh(Y[i]) - sigmoid(Y[i])", "fp32"))),
                    arguments, "Z", want, "all");
}

TEST(Functions, TakeRealsAlone) {
  for (const char* value : {"log(i)", "tanh(i)", "sigmoid(i)", "pow(X[i], i)", "pow(i, X[i])"})
    expect_contains(refusal([&] { parse(elementwise(value, "fp32")); }), "real(x) makes one of an integer", value);
  expect_contains(refusal([&] { parse(elementwise("pow(X[i])", "fp32")); }), "pow takes 2 operands, not 1", "pow");
  // Their names are no words of the language: a buffer may have one.
  EXPECT_NO_THROW(
      parse("program p(pow):\n  I = dense_fixed(pow)\n  log = buffer(I): fp32\n"
            "  iterate tanh(I) \"S\" as (sigmoid):\n    log[sigmoid] = log(log[sigmoid])\n"));
}

constexpr const char* kScaled = R"(program scaled(m, n, nnz, feat, alpha: real, beta: real):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  A = buffer(I, J): fp32
  B = buffer(J_, K): fp32
  C = buffer(I, K): fp32
  iterate clear(I, K) "SS" as (i, k):
    C[i, k] = C[i, k] * beta
  iterate product(I, J, K) "SRS" as (i, j, k) where alpha != 0.0:
    C[i, k] = C[i, k] + alpha * A[i, j] * B[j, k]
)";

TEST(RealParameters, AreGivenToARunOrFixed) {
  const Matrix a = random_matrix(Shape::uniform, 5);
  const int64_t feat = 20;
  Values b = random_values(static_cast<size_t>(a.cols * feat), 6), c(static_cast<size_t>(a.rows * feat));
  const std::vector<double> product = dense_spmm(a, b, feat);
  for (const char* schedule : {"",
                               "lower()\nko, ki = split(product.k, 8)\nreorder(ko, product.j, ki)\nvectorize(ki)\n"
                               "parallel(product.i)\n"})
    for (const auto& [alpha, beta] : {std::pair(0.5, -2.0), {-1.25, 0.75}, {0.0, 1.0}})
      for (const bool fixed : {false, true}) {
        const Values before = random_values(c.size(), 7);
        std::vector<double> want(product.size());
        for (size_t e = 0; e < want.size(); ++e) want[e] = beta * before[e] + alpha * product[e];
        RunArguments arguments{.structures = {{"J", a.structure()}},
                               .buffers = {{"A", a.values_view()},
                                           {"B", {b.data(), DType::fp32, {a.cols, feat}}},
                                           {"C", {c.data(), DType::fp32, {a.rows, feat}}}}};
        CompileOptions options;
        if (fixed)
          options.set_reals = {{"alpha", alpha}, {"beta", beta}};
        else
          arguments.reals = {{"alpha", alpha}, {"beta", beta}};
        const Operator op = compile(parse(kScaled), schedule, Device::cpu(), options);
        c = before;
        for (const Stage stage : interpreted_stages(Stage::source))
          expect_close(interpret_operator(op, arguments, stage).buffers.at("C"), want, 1e-6, "stage");
        op.run(arguments);
        expect_close(doubles(c), want, 1e-5, fmt::format("{}, {}: {}", alpha, beta, schedule));
        // The same operator, with others.
        if (fixed) continue;
        c = before;
        arguments.reals = {{"alpha", 0.0}, {"beta", 1.0}};
        op.run(arguments);
        EXPECT_EQ(c, before);
      }
}

TEST(RealParameters, AreReadBackAtEveryStageAndBuiltCallByCall) {
  const Operator op = compile(parse(kScaled), Device::cpu(), {.stop_after = "generate"});
  const Compilation& made = op.impl().made;
  EXPECT_EQ(parse_program(to_text(made.stage1)).stage1, made.stage1);
  EXPECT_EQ(to_text(parse_stage2(to_text(made.compute2))), to_text(made.compute2));
  EXPECT_EQ(loop::parse_function(to_text(made.compute3)), made.compute3.function);
  EXPECT_NE(op.text("cuda").find("double weft_real_alpha"), std::string::npos);
  const Program built =
      ProgramBuilder("p", {"n", "alpha: real"})
          .dense_fixed("I", "n")
          .buffer("Z", {"I"})
          .iterate({.name = "a", .axes = {"I"}, .kinds = "S", .iterators = {"i"}, .body = {"Z[i] = alpha"}})
          .build();
  Values z(3);
  compile(built).run({.buffers = {{"Z", {z.data(), DType::fp32, {3}}}}, .reals = {{"alpha", 1.5}}});
  EXPECT_EQ(z, (Values{1.5, 1.5, 1.5}));
}

TEST(RealParameters, AreRefusedWhereTheyDoNotFit) {
  const Operator op = compile(parse(kScaled), Device::cpu(), {.stop_after = "generate"});
  const auto set = [](CompileOptions options) {
    options.stop_after = "specialise";
    return refusal([&] { compile(parse(kScaled), Device::cpu(), options); });
  };
  expect_contains(set({.set = {{"alpha", 1}}}), "set: 'alpha' is a real parameter", "set");
  expect_contains(set({.set_reals = {{"feat", 1}}}), "set_reals: 'feat' is no real parameter", "set_reals");
  const auto run = [&](RunArguments arguments) {
    arguments.structures = {{"J", random_matrix(Shape::uniform, 1).structure()}};
    arguments.scalars["feat"] = 3;
    return refusal([&] { interpret_operator(op, arguments, Stage::one); });
  };
  expect_contains(run({.reals = {{"alpha", 1}}}), "real parameters beta: nothing else tells them", "missing");
  expect_contains(run({.reals = {{"alpha", 1}, {"beta", 1}, {"gamma", 1}}}), "reals['gamma']: there is no such",
                  "gamma");
  expect_contains(run({.scalars = {{"alpha", 1}}}), "scalars['alpha']: it is a real parameter", "scalars");
  for (const auto& [text, says] :
       {std::pair("program p(a: real):\n  I = dense_fixed(a)\n", "an integer is expected here, not a"),
        {"program p(a: int):\n", "a parameter is an integer, or ': real'"},
        {"program p(a: real, a):\n", "'a' is declared twice"}})
    expect_contains(refusal([&] { parse(text); }), says, text);
}

// Every number of fp16, and what lies between two of them.
TEST(Fp16, IsStoredToNearestAndComputedInFp32) {
  EXPECT_EQ(to_fp16(1.0 / 3), 0x3555);
  for (unsigned bits = 0; bits < 0x10000; ++bits)
    if (!std::isnan(from_fp16(static_cast<uint16_t>(bits)))) {
      EXPECT_EQ(to_fp16(from_fp16(static_cast<uint16_t>(bits))), bits);
    }
  std::vector<uint16_t> x(0x10000), z(x.size());
  for (size_t e = 0; e < x.size(); ++e) x[e] = static_cast<uint16_t>(e);
  Values factor(x.size());
  std::mt19937 random(3);
  for (float& f : factor)
    f = std::ldexp(1.f + static_cast<float>(random() % 4096) / 4096.f, static_cast<int>(random() % 5) - 2);
  const auto n = static_cast<int64_t>(x.size());
  const std::string text =
      "program p(n):\n  I = dense_fixed(n)\n  X = buffer(I): fp16\n  F = buffer(I): fp32\n"
      "  Z = buffer(I): fp16\n  iterate a(I) \"S\" as (i):\n    Z[i] = X[i] * F[i]\n";
  for (const char* lanes : {"1", "2", "4", "8", "16", "32"}) {
    const std::string schedule =
        std::string(lanes) == "1" ? ""
                                  : fmt::format("lower()\no, v = split(a.i, {})\nvectorize(v)\nparallel(o)\n", lanes);
    std::fill(z.begin(), z.end(), uint16_t{0x1234});
    compile(parse(text), schedule)
        .run({.buffers = {{"X", {x.data(), DType::fp16, {n}}},
                          {"F", {factor.data(), DType::fp32, {n}}},
                          {"Z", {z.data(), DType::fp16, {n}}}}});
    for (size_t e = 0; e < x.size(); ++e) {
      const double exact = from_fp16(x[e]) * static_cast<double>(factor[e]);  // which fp32 holds
      if (std::isnan(exact)) {
        EXPECT_TRUE(std::isnan(from_fp16(z[e]))) << lanes << " lanes, " << e;
      } else {
        ASSERT_EQ(z[e], to_fp16(exact)) << lanes << " lanes, " << e;
      }
    }
  }
}

// SpMM of fp16 with sums in registers, in several formats.
TEST(Fp16, IsATypeOfEveryBuffer) {
  std::string text = kSpmmProgram;
  for (size_t at; (at = text.find("fp32")) != text.npos;) text.replace(at, 4, "fp16");
  const Matrix a = random_matrix(Shape::uniform, 11);
  const int64_t feat = 24;
  const auto narrowed = [](const Values& values) {
    std::vector<uint16_t> list;
    for (const float value : values) list.push_back(to_fp16(value));
    return list;
  };
  const auto widened = [](const std::vector<uint16_t>& list) {
    Values values;
    for (const uint16_t bits : list) values.push_back(static_cast<float>(from_fp16(bits)));
    return values;
  };
  std::vector<uint16_t> values = narrowed(a.values),
                        b = narrowed(random_values(static_cast<size_t>(a.cols * feat), 12)),
                        c(static_cast<size_t>(a.rows * feat));
  Matrix rounded = a;
  rounded.values = widened(values);
  for (size_t i = 0, p = 0; i < static_cast<size_t>(a.rows); ++i)
    for (; p < static_cast<size_t>(a.indptr[i + 1]); ++p)
      rounded.dense[i * static_cast<size_t>(a.cols) + static_cast<size_t>(a.indices[p])] = rounded.values[p];
  const std::vector<double> want = dense_spmm(rounded, widened(b), feat);
  for (const char* schedule :
       {"lower()\nko, ki = split(csrmm.k, 8)\nreorder(ko, csrmm.j, ki)\nvectorize(ki)\ncache_write(ko, register)\n"
        "parallel(csrmm.i)\n",
        "decompose_format(csrmm, A, ell(50))\nlower()\ncache_write(csrmm.i, register)\n"}) {
    const Operator op = compile(parse(text), schedule, Device::cpu(), {.set = {{"feat", feat}}});
    op.run({.structures = {{"J", a.structure()}},
            .buffers = {{"A", {values.data(), DType::fp16, {static_cast<int64_t>(values.size())}}},
                        {"B", {b.data(), DType::fp16, {a.cols, feat}}},
                        {"C", {c.data(), DType::fp16, {a.rows, feat}}}}});
    expect_close(doubles(widened(c)), want, 1. / 1024, schedule);
  }
}

// Of doubles, integers and constants, too.
TEST(Fp16, LanesAreStoredOfAnyValue) {
  for (const char* value : {"1.5", "3", "N[0]", "X[i]", "X[i] + N[i]"}) {
    const std::string program = fmt::format(R"(program p():
  I = dense_fixed(8)
  N = buffer(I): int32
  X = buffer(I): fp64
  Z = buffer(I): fp16
  iterate a(I) "S" as (i):
    Z[i] = {}
)",
                                            value);
    std::array<std::array<uint16_t, 8>, 2> z{};
    for (const bool in_lanes : {false, true}) {
      std::vector<int32_t> n{5, 4, 3, 2, 1, 0, -1, -2};
      std::vector<double> x{0.5, 1, -2, 3, 4, 5, 6, 7};
      compile(parse(program), in_lanes ? "lower()\nvectorize(a.i)\n" : "lower()\n")
          .run({.buffers = {{"N", {n.data(), DType::int32, {8}}},
                            {"X", {x.data(), DType::fp64, {8}}},
                            {"Z", {z[in_lanes].data(), DType::fp16, {8}}}}});
    }
    EXPECT_EQ(z[0], z[1]) << value;
  }
}

}  // namespace
}  // namespace weft::sparse::test
