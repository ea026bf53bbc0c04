// The vocabulary of variants against the C library in double, for every instruction set: the bounds of
// docs/numerics.md.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "attention/cpu/leaf.h"
#include "attention/variant/text.h"
#include "device/cpu/cpuid.h"
#include "jit/host/module.h"

namespace weft {
namespace {

using Array = void (*)(const float* x, float* y, int n);

// Loops over the functions, compiled as a leaf is.
const Module& functions(Isa isa) {
  static std::map<Isa, std::shared_ptr<const Module>> modules;
  auto& module = modules[isa];
  if (module == nullptr) {
    std::string text = leaf_head(isa);
    for (const char* f : {"exp", "exp2", "log", "tanh", "fast_tanh", "sigmoid", "sin", "cos", "rsqrt", "sqrt", "abs"})
      text += std::string("extern \"C\" __attribute__((visibility(\"default\"))) void f_") + f +
              "(const float* x, float* y, int n) { for (int i = 0; i < n; ++i) y[i] = weft::" + f + "(x[i]); }\n";
    text +=
        R"(extern "C" __attribute__((visibility("default"))) void f_divide(const int* x, int d, int* q, int* r, int n) {
  for (int i = 0; i < n; ++i) { q[i] = weft::div_const(x[i], d); r[i] = weft::mod_const(x[i], d); }
}
extern "C" __attribute__((visibility("default")))

void f_minmax(const float* x, const float* y, float* low, float* high, int n) {
  for (int i = 0; i < n; ++i) { low[i] = weft::min(x[i], y[i]); high[i] = weft::max(x[i], y[i]); }
}
)";
    module =
        jit::host_module({.name = "math", .text = text, .target = jit::host_target(isa), .flags = leaf_flags()}).module;
  }
  return *module;
}

std::vector<float> apply(Isa isa, const char* name, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  const auto f = reinterpret_cast<Array>(functions(isa).symbol((std::string("f_") + name).c_str()));
  f(x.data(), y.data(), static_cast<int>(x.size()));
  return y;
}

// In units of the last place of the exact result; results below the normal numbers count as zero.
double ulps(float actual, double exact) {
  if (std::isnan(exact)) return std::isnan(actual) ? 0 : 1e9;
  if (std::isinf(exact) || std::abs(exact) > static_cast<double>(std::numeric_limits<float>::max()))
    return std::isinf(actual) && (actual > 0) == (exact > 0) ? 0 : 1e9;
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::abs(static_cast<double>(actual) - exact) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

struct Case {
  const char* name;
  double (*exact)(double);
  float low, high;
  double bound;  // ulps
};
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double rsqrt(double x) { return 1 / std::sqrt(x); }

TEST(LeafMath, StaysWithinItsStatedBoundsOnEveryInstructionSet) {
  const Case cases[] = {{"exp", std::exp, -86.9f, 88.72f, 2},        {"exp2", std::exp2, -125.4f, 127.99f, 2},
                        {"log", std::log, 1.2e-38f, 3e38f, 3},       {"tanh", std::tanh, -12.f, 12.f, 4},
                        {"fast_tanh", std::tanh, -12.f, 12.f, 1260}, {"sigmoid", sigmoid, -80.f, 80.f, 4},
                        {"sqrt", std::sqrt, 0.f, 3e38f, 1},          {"rsqrt", rsqrt, 1.2e-38f, 3e38f, 2}};
  std::mt19937 random(1);
  for (const Isa isa : supported_isas())
    for (const Case& c : cases) {
      std::vector<float> x;
      std::uniform_real_distribution<float> wide(c.low, c.high), near(std::max(c.low, -1.f), std::min(c.high, 2.f));
      for (int i = 0; i < 60000; ++i) x.push_back(i % 2 == 0 ? wide(random) : near(random));
      for (float small = 1e-30f; small < 1; small *= 1.37f)
        if (small > c.low) x.push_back(small);
      const auto y = apply(isa, c.name, x);
      double worst = 0;
      float at = 0;
      for (size_t i = 0; i < x.size(); ++i)
        if (const double e = ulps(y[i], c.exact(static_cast<double>(x[i]))); e > worst) {
          worst = e;
          at = x[i];
        }
      EXPECT_LE(worst, c.bound) << c.name << "(" << at << ") on " << to_string(isa);
    }
}

TEST(LeafMath, SineAndCosineAreWithinTwoRoundingsOfOneUpToFiftyThousand) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> wide(-50000.f, 50000.f), near(-4.f, 4.f);
  std::vector<float> x;
  for (int i = 0; i < 50000; ++i) x.push_back(i % 2 == 0 ? wide(random) : near(random));
  for (const Isa isa : supported_isas()) {
    const auto s = apply(isa, "sin", x), c = apply(isa, "cos", x);
    // Without fused multiply-add the argument's reduction loses what the last product rounds.
    const auto bound = [&](float at) {
      return 1.2e-7 + (isa == Isa::plain ? std::abs(static_cast<double>(at)) * 3e-11 : 0);
    };
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(s[i]), std::sin(static_cast<double>(x[i])), bound(x[i])) << x[i];
      ASSERT_NEAR(static_cast<double>(c[i]), std::cos(static_cast<double>(x[i])), bound(x[i])) << x[i];
    }
  }
}

TEST(LeafMath, NanOfEveryPayloadStaysNan) {
  std::vector<float> x;
  for (uint32_t bits : {0x7fc00000u, 0x7fc00001u, 0x7fffffffu, 0xffc00000u, 0x7fa00000u, 0x7fc12345u, 0xffffffffu,
                        0x7f800001u, 0xff800001u})
    for (uint32_t low : {0u, 0x7fu, 0x155u}) x.push_back(std::bit_cast<float>(bits ^ low));
  for (const Isa isa : supported_isas())
    for (const char* name :
         {"exp", "exp2", "log", "tanh", "fast_tanh", "sigmoid", "sin", "cos", "sqrt", "rsqrt", "abs"})
      for (const float y : apply(isa, name, x)) EXPECT_TRUE(std::isnan(y)) << name << " on " << to_string(isa);
}

TEST(LeafMath, SpecialValuesAreExact) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Isa isa : supported_isas()) {
    EXPECT_EQ(apply(isa, "exp", {0.f, -0.f, -inf, inf, -100.f, -88.f, 89.f, -1e30f}),
              (std::vector<float>{1, 1, 0, inf, 0, 0, inf, 0}));
    EXPECT_EQ(apply(isa, "exp2", {0.f, 1.f, -3.f, 127.f, 128.f, -inf, inf, -126.f}),
              (std::vector<float>{1, 2, 0.125f, 0x1p127f, inf, 0, inf, 0}));
    EXPECT_EQ(apply(isa, "tanh", {0.f, inf, -inf, 50.f, -50.f}), (std::vector<float>{0, 1, -1, 1, -1}));
    EXPECT_EQ(apply(isa, "sigmoid", {0.f, inf, -inf, 100.f, -100.f}), (std::vector<float>{0.5f, 1, 0, 1, 0}));
    EXPECT_EQ(apply(isa, "log", {1.f, 0.f, inf}), (std::vector<float>{0, -inf, inf}));
    EXPECT_TRUE(std::isnan(apply(isa, "log", {-1.f})[0]));
    EXPECT_EQ(apply(isa, "cos", {0.f})[0], 1.f);
    EXPECT_EQ(apply(isa, "sin", {0.f})[0], 0.f);
  }
}

TEST(LeafMath, MinAndMaxKeepNanOnEitherSide) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Isa isa : supported_isas()) {
    const auto f =
        reinterpret_cast<void (*)(const float*, const float*, float*, float*, int)>(functions(isa).symbol("f_minmax"));
    const std::vector<float> x = {1, nan, 2, -3}, y = {2, 1, nan, -4};
    std::vector<float> low(4), high(4);
    f(x.data(), y.data(), low.data(), high.data(), 4);
    EXPECT_EQ(low[0], 1.f);
    EXPECT_EQ(high[0], 2.f);
    EXPECT_TRUE(std::isnan(low[1]) && std::isnan(high[1]) && std::isnan(low[2]) && std::isnan(high[2]));
    EXPECT_EQ(low[3], -4.f);
    EXPECT_EQ(high[3], -3.f);
  }
}

TEST(LeafMath, DivisionByARunTimeIntegerIsExact) {
  std::mt19937 random(3);
  std::vector<int> x = {0, 1, 2, 2147483647, 2147483646};
  for (int i = 0; i < 2000; ++i) x.push_back(static_cast<int>(random() >> 1));
  for (const Isa isa : supported_isas()) {
    const auto f = reinterpret_cast<void (*)(const int*, int, int*, int*, int)>(functions(isa).symbol("f_divide"));
    for (const int d : {1, 2, 3, 7, 64, 1000, 46341, 2147483647}) {
      // Multiples and their neighbours are where a rounded quotient would be off by one.
      std::vector<int> all = x;
      for (const int value : x) {
        const int multiple = value / d * d;
        all.push_back(multiple);
        all.push_back(std::max(0, multiple - 1));
      }
      std::vector<int> q(all.size()), r(all.size());
      f(all.data(), d, q.data(), r.data(), static_cast<int>(all.size()));
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(q[i], all[i] / d) << all[i] << " / " << d;
        ASSERT_EQ(r[i], all[i] % d) << all[i] << " % " << d;
      }
    }
  }
}

}  // namespace
}  // namespace weft
