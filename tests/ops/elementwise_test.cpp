// Norms, gate and RoPE against fp64, written out plainly.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "weft/error.h"
#include "weft/ops.h"

namespace weft {
namespace {

ErrorCode code_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::io_error;
}

std::vector<float> random_floats(int64_t n, uint64_t seed, float scale = 1.f) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.f, scale);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = normal(random);
  return x;
}

TensorView tensor_of(const std::vector<float>& x, std::initializer_list<int64_t> shape) {
  return TensorView(x.data(), DType::fp32, shape);
}

class Rows : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(, Rows, testing::Values(1, 3, 129), testing::PrintToStringParamName());  // 129: over the team

TEST_P(Rows, RmsNormAgreesWithFp64) {
  const int64_t rows = GetParam();
  for (int64_t dim : {1, 8, 33, 576}) {
    const std::vector<float> x = random_floats(rows * dim, 1, 3.f), weight = random_floats(dim, 2);
    std::vector<float> y(x.size(), std::nanf(""));
    rms_norm(tensor_of(x, {rows, dim}), tensor_of(weight, {dim}), 1e-5f, tensor_of(y, {rows, dim}));
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) squares += double{x[r * dim + i]} * x[r * dim + i];
      for (int64_t i = 0; i < dim; ++i) {
        const double expected = x[r * dim + i] / std::sqrt(squares / static_cast<double>(dim) + 1e-5) * weight[i];
        ASSERT_NEAR(y[r * dim + i], expected, 1e-6 * (1 + std::abs(expected))) << r << " " << i;
      }
    }
  }
}

TEST_P(Rows, AddRmsNormAddsFirstAndNormalisesTheSum) {
  const int64_t rows = GetParam(), dim = 300;
  const std::vector<float> x = random_floats(rows * dim, 1), weight = random_floats(dim, 2),
                           before = random_floats(rows * dim, 3);
  std::vector<float> residual = before, y(x.size()), expected(x.size());
  add_rms_norm(tensor_of(x, {rows, dim}), tensor_of(residual, {rows, dim}), tensor_of(weight, {dim}), 1e-6f,
               tensor_of(y, {rows, dim}));
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(residual[i], before[i] + x[i]);
  rms_norm(tensor_of(residual, {rows, dim}), tensor_of(weight, {dim}), 1e-6f, tensor_of(expected, {rows, dim}));
  EXPECT_EQ(y, expected);
}

TEST_P(Rows, NormsHeadsWithinWiderRowsInPlace) {
  const int64_t rows = GetParam(), heads = 3, dim = 16, stride = 80;
  std::vector<float> x = random_floats(rows * stride, 5);
  const std::vector<float> before = x, weight = random_floats(dim, 6);
  const std::array<int64_t, 3> shape{rows, heads, dim}, strides{stride, dim, 1};
  const TensorView slice(x.data() + 8, DType::fp32, shape, strides);
  rms_norm(slice, tensor_of(weight, {dim}), 1e-6f, slice);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < stride; ++c) {
      const bool inside = c >= 8 && c < 8 + heads * dim;
      if (!inside) {
        ASSERT_EQ(x[r * stride + c], before[r * stride + c]);
        continue;
      }
      const int64_t first = (c - 8) / dim * dim + 8;
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) squares += std::pow(double{before[r * stride + first + i]}, 2);
      ASSERT_NEAR(x[r * stride + c], before[r * stride + c] / std::sqrt(squares / dim + 1e-6) * weight[c - first],
                  1e-5);
    }
}

TEST_P(Rows, SiluAndMulAgreesWithFp64FarFromZeroToo) {
  const int64_t rows = GetParam(), dim = 1200;
  std::vector<float> gate = random_floats(rows * dim, 1, 30.f), up = random_floats(rows * dim, 2), y(gate.size());
  gate[0] = -1e30f, gate[1] = 1e30f, gate[2] = 0.f, gate[3] = -88.5f, gate[4] = std::nanf("");
  up[0] = up[1] = 1.f;
  silu_and_mul(tensor_of(gate, {rows, dim}), tensor_of(up, {rows, dim}), tensor_of(y, {rows, dim}));
  EXPECT_TRUE(std::isnan(y[4]));
  for (size_t i = 0; i < gate.size(); ++i) {
    if (i == 0 || i == 4) continue;
    const double expected = gate[i] / (1 + std::exp(-double{gate[i]})) * up[i];
    ASSERT_NEAR(y[i], expected, 1e-6 * std::abs(expected) + 1e-30) << gate[i];
  }
  EXPECT_LE(std::abs(y[0]), 1e-7f);
}

TEST_P(Rows, GeluTanhAndMulAgreesWithFp64FarFromZeroToo) {
  const int64_t rows = GetParam(), dim = 1200;
  std::vector<float> gate = random_floats(rows * dim, 1, 3.f), up = random_floats(rows * dim, 2), y(gate.size());
  gate[0] = -1e30f, gate[1] = 1e30f, gate[2] = 0.f, gate[3] = -88.5f, gate[4] = std::nanf("");
  up[0] = up[1] = 1.f;
  gelu_tanh_and_mul(tensor_of(gate, {rows, dim}), tensor_of(up, {rows, dim}), tensor_of(y, {rows, dim}));
  EXPECT_TRUE(std::isnan(y[4]));
  for (size_t i = 0; i < gate.size(); ++i) {
    if (i == 0 || i == 4) continue;
    const double x = gate[i], z = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    const double expected = x / (1 + std::exp(-2 * z)) * up[i];
    ASSERT_NEAR(y[i], expected, 2e-6 * std::abs(expected) + 1e-7) << gate[i];
  }
  EXPECT_LE(std::abs(y[0]), 1e-7f);
}

TEST_P(Rows, SoftCapAgreesWithFp64InPlace) {
  const int64_t rows = GetParam(), dim = 300, stride = 310;
  std::vector<float> x = random_floats(rows * stride, 1, 40.f);
  x[0] = 1e30f, x[1] = -1e30f, x[2] = 0.f, x[3] = std::nanf(""), x[4] = 1e-20f;
  const std::vector<float> before = x;
  soft_cap(TensorView(x.data(), DType::fp32, std::array{rows, dim}, std::array{stride, int64_t{1}}), 30.f);
  EXPECT_TRUE(std::isnan(x[3]));
  for (int64_t i = 0; i < rows * stride; ++i) {
    if (i == 3) continue;
    const double expected = i % stride < dim ? 30 * std::tanh(before[i] / 30.0) : before[i];
    ASSERT_NEAR(x[i], expected, 1e-5) << before[i];
  }
}

// Both signs of magnitudes from 1e-37 to 1e38, evenly in the exponent.
std::vector<float> magnitudes() {
  std::vector<float> x;
  for (double exponent = -37; exponent <= 38; exponent += 0.01)
    for (const double sign : {1., -1.}) x.push_back(static_cast<float>(sign * std::pow(10., exponent)));
  return x;
}

TEST(SoftCap, HoldsItsRelativeErrorAtEveryMagnitude) {
  for (const float cap : {30.f, 1e-37f, 1e-3f, 1e10f, 3e38f}) {
    const std::vector<float> before = magnitudes();
    std::vector<float> x = before;
    soft_cap(tensor_of(x, {1, static_cast<int64_t>(x.size())}), cap);
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = cap * std::tanh(before[i] / double{cap});
      ASSERT_NEAR(x[i], expected, 1e-6 * std::abs(expected)) << before[i] << " capped at " << cap;
    }
  }
}

TEST(SoftCap, LeavesEverythingAsItIsWhereTheCapIsInfinite) {
  std::vector<float> x = {-INFINITY, -3e38f, -1.f, -0.f, 0.f, 1e-45f, 2.f, INFINITY, std::nanf("")}, before = x;
  soft_cap(tensor_of(x, {1, static_cast<int64_t>(x.size())}), INFINITY);
  EXPECT_TRUE(std::isnan(x.back()));
  x.pop_back(), before.pop_back();
  EXPECT_EQ(x, before);
  soft_cap(tensor_of(x, {1, static_cast<int64_t>(x.size())}), 30.f);
  EXPECT_EQ(x.front(), -30.f);
  EXPECT_EQ(x.back(), 30.f);
  soft_cap(tensor_of(x, {1, static_cast<int64_t>(x.size())}), 1e-40f);
  EXPECT_EQ(x, (std::vector<float>{-1e-40f, -1e-40f, -1e-40f, -0.f, 0.f, x[5], 1e-40f, 1e-40f}));
}

// The gates fall to 0 far below zero: no magnitude is too large.
TEST(Gates, HoldTheirErrorAtEveryMagnitude) {
  std::vector<float> gate = magnitudes();
  gate.insert(gate.end(), {3.4e38f, -3.4e38f, -INFINITY, INFINITY});
  const auto n = static_cast<int64_t>(gate.size());
  const std::vector<float> up(gate.size(), 1.f);
  std::vector<float> silu(gate.size()), gelu(gate.size());
  silu_and_mul(tensor_of(gate, {1, n}), tensor_of(up, {1, n}), tensor_of(silu, {1, n}));
  gelu_tanh_and_mul(tensor_of(gate, {1, n}), tensor_of(up, {1, n}), tensor_of(gelu, {1, n}));
  EXPECT_EQ(silu.back(), INFINITY);
  EXPECT_EQ(gelu.back(), INFINITY);
  for (size_t i = 0; i + 1 < gate.size(); ++i) {
    const double x = std::isinf(gate[i]) ? -1e300 : double{gate[i]};
    const double z = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    const double silu_of = x < -1e3 ? 0 : x / (1 + std::exp(-x)), gelu_of = x < -1e3 ? 0 : x / (1 + std::exp(-2 * z));
    ASSERT_NEAR(silu[i], silu_of, 1e-6 * std::abs(silu_of) + 1e-36) << gate[i];
    ASSERT_NEAR(gelu[i], gelu_of, 1e-5 * std::abs(gelu_of) + 1e-36) << gate[i];
  }
}

// Squares leave the range of fp32 far sooner than numbers do.
TEST(RmsNorm, HoldsItsRelativeErrorAtEveryMagnitude) {
  const int64_t dim = 40;
  const std::vector<float> unit = random_floats(dim, 3), weight = random_floats(dim, 4),
                           zeros(static_cast<size_t>(dim));
  for (const float eps : {0.f, 1e-38f, 1e-6f, 1e30f, 3.4e38f})
    for (double exponent = -37; exponent <= 38; exponent += 0.5) {
      std::vector<float> x = unit, y(unit.size()), residual(unit.size());
      for (float& value : x) value = static_cast<float>(std::clamp(value, -3.f, 3.f) * std::pow(10., exponent));
      rms_norm(tensor_of(x, {1, dim}), tensor_of(weight, {dim}), eps, tensor_of(y, {1, dim}));
      double squares = 0;
      for (const float value : x) squares += double{value} * double{value};
      const double rms = std::sqrt(squares / dim + double{eps});
      for (size_t i = 0; i < x.size(); ++i) {
        const double expected = x[i] / rms * weight[i];
        ASSERT_NEAR(y[i], expected, 2e-6 * std::abs(expected) + 1e-44) << x[i] << ", eps " << eps;
      }
      std::vector<float> added(unit.size());
      add_rms_norm(tensor_of(x, {1, dim}), tensor_of(residual, {1, dim}), tensor_of(weight, {dim}), eps,
                   tensor_of(added, {1, dim}));
      ASSERT_EQ(added, y);
    }
}

TEST(RmsNorm, MakesNothingElseOfARowThatIsNotFinite) {
  for (const float bad : {INFINITY, std::nanf("")}) {
    const std::vector<float> x = {1.f, bad, -2.f}, weight(3, 1.f);
    std::vector<float> y(3);
    rms_norm(tensor_of(x, {1, 3}), tensor_of(weight, {3}), 1e-6f, tensor_of(y, {1, 3}));
    EXPECT_TRUE(std::isnan(y[1]));
    for (const size_t i : {size_t{0}, size_t{2}}) EXPECT_TRUE(std::isnan(bad) ? std::isnan(y[i]) : y[i] == 0.f);
  }
}

// YaRN's ramp, by turns within the original context: written from the paper's figures, apart from the product.
double yarn_frequency(const RopeParams& params, int rotary_dim, int pair) {
  const double theta = params.theta, plain = std::pow(theta, -2.0 * pair / rotary_dim);
  const auto pair_turning = [&](double turns) {
    const double frequency = turns * 2 * std::numbers::pi / params.original_context;
    return -std::log(frequency) / std::log(theta) * rotary_dim / 2;
  };
  const double first = std::max(0.0, std::floor(pair_turning(params.beta_fast)));
  const double last = std::min(rotary_dim - 1.0, std::ceil(pair_turning(params.beta_slow)));
  const double ramp = pair <= first ? 0 : pair >= last ? 1 : (pair - first) / (last - first);
  return plain * (1 - ramp) + plain / params.factor * ramp;
}

double angle(const RopeParams& params, int rotary_dim, int pair, int position) {
  double frequency = std::pow(double{params.theta}, -2.0 * pair / rotary_dim);
  if (params.scaling == RopeScaling::yarn) {
    frequency = yarn_frequency(params, rotary_dim, pair);
  } else if (params.factor != 1.f) {
    const double wavelength = 2 * std::numbers::pi / frequency, context = params.original_context,
                 low = context / params.low_freq_factor, high = context / params.high_freq_factor;
    const double smooth =
        (context / wavelength - params.low_freq_factor) / (params.high_freq_factor - params.low_freq_factor);
    if (wavelength > low)
      frequency /= params.factor;
    else if (wavelength >= high)
      frequency *= (1 - smooth) / params.factor + smooth;
  }
  if (!params.divisors.empty()) frequency /= params.divisors[static_cast<size_t>(pair)];
  return position / double{params.linear_scale} * frequency;
}

TEST_P(Rows, RopeTurnsPairsByTheirAngles) {
  const int64_t rows = GetParam(), heads = 5;
  const RopeParams cases[] = {
      {},
      {.pairs = RopePairs::halves},
      {.pairs = RopePairs::adjacent, .rotary_dim = 20, .theta = 1e6f},
      {.pairs = RopePairs::halves, .rotary_dim = 12, .linear_scale = 4.f},
      {.pairs = RopePairs::halves, .theta = 5e5f, .factor = 8.f, .original_context = 256},
      {.pairs = RopePairs::halves,
       .scaling = RopeScaling::yarn,
       .factor = 4.f,
       .original_context = 512,
       .attention_factor = 1.25f},
      // An original context so short that the ramp would begin before the first pair; longer
      // than 2 pi theta, so that it ends behind the last; far longer, so that it is held to
      // the head's size; and so long that all pairs keep their frequencies.
      {.scaling = RopeScaling::yarn, .factor = 4.f, .original_context = 16},
      {.scaling = RopeScaling::yarn, .factor = 4.f, .original_context = 131072},
      {.rotary_dim = 8,
       .theta = 10.f,
       .scaling = RopeScaling::yarn,
       .factor = 4.f,
       .original_context = 1000000,
       .beta_fast = 5e4f},
      {.rotary_dim = 8, .theta = 10.f, .scaling = RopeScaling::yarn, .factor = 4.f, .original_context = 1000000},
      {.rotary_dim = 8, .linear_scale = 2.f, .divisors = {1.f, 0.5f, 1e30f, 3.f}},
      {.rotary_dim = 4,
       .scaling = RopeScaling::yarn,
       .factor = 4.f,
       .original_context = 512,
       .divisors = {2.f, 1.25f}}};
  for (const RopeParams& params : cases) {
    const int dim = 64, rotary = params.rotary_dim == 0 ? dim : params.rotary_dim;
    std::vector<float> x = random_floats(rows * heads * dim, 7);
    const std::vector<float> before = x;
    std::vector<int32_t> positions;
    for (int64_t r = 0; r < rows; ++r) positions.push_back(static_cast<int32_t>((r * 997) % 3000));
    apply_rope(tensor_of(x, {rows, heads, dim}), positions, params);
    for (int64_t row = 0; row < rows * heads; ++row)
      for (int i = 0; i < dim; ++i) {
        double expected = before[row * dim + i];
        if (i < rotary) {
          const bool adjacent = params.pairs == RopePairs::adjacent;
          const int pair = adjacent ? i / 2 : i % (rotary / 2);
          const bool second = adjacent ? i % 2 == 1 : i >= rotary / 2;
          const double turn = angle(params, rotary, pair, positions[row / heads]);
          const double a = before[row * dim + (adjacent ? 2 * pair : pair)],
                       b = before[row * dim + (adjacent ? 2 * pair + 1 : pair + rotary / 2)];
          expected = second ? b * std::cos(turn) + a * std::sin(turn) : a * std::cos(turn) - b * std::sin(turn);
          expected *= params.attention_factor;
        }
        ASSERT_NEAR(x[row * dim + i], expected, 2e-6) << "row " << row << " element " << i;
      }
  }
}

TEST(Elementwise, RefusesTensorsThatDoNotFit) {
  const std::vector<float> x(12), w(4);
  const TensorView a = tensor_of(x, {3, 4}), weight = tensor_of(w, {4});
  const std::array<int64_t, 2> shape{2, 4}, strides{1, 2};
  EXPECT_EQ(code_of([&] { rms_norm(a, tensor_of(w, {3}), 0.f, a); }), ErrorCode::invalid_shape);
  for (const float eps : {-1.f, INFINITY, std::nanf("")}) {
    EXPECT_EQ(code_of([&] { rms_norm(a, weight, eps, a); }), ErrorCode::invalid_argument) << eps;
    EXPECT_EQ(code_of([&] { add_rms_norm(a, a, weight, eps, a); }), ErrorCode::invalid_argument) << eps;
  }
  EXPECT_EQ(code_of([&] { rms_norm(a, weight, 0.f, tensor_of(x, {4, 3})); }), ErrorCode::invalid_shape);
  EXPECT_EQ(code_of([&] { rms_norm({}, weight, 0.f, a); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] {
              rms_norm(TensorView(x.data(), DType::bf16, {3, 4}), weight, 0.f, a);
            }),
            ErrorCode::invalid_dtype);
  EXPECT_EQ(code_of([&] {
              rms_norm(TensorView(x.data(), DType::fp32, {3, 4}, Device::cuda()), weight, 0.f, a);
            }),
            ErrorCode::invalid_device);
  EXPECT_EQ(code_of([&] { rms_norm(TensorView(x.data(), DType::fp32, shape, strides), weight, 0.f, a); }),
            ErrorCode::invalid_stride);
  EXPECT_EQ(code_of([&] { add_rms_norm(a, tensor_of(x, {2, 4}), weight, 0.f, a); }), ErrorCode::invalid_shape);
  EXPECT_EQ(code_of([&] { silu_and_mul(a, tensor_of(x, {2, 4}), a); }), ErrorCode::invalid_shape);
  const TensorView heads = tensor_of(x, {1, 3, 4});
  const std::vector<int32_t> one = {0}, two = {0, 1};
  EXPECT_EQ(code_of([&] { apply_rope(heads, two, {}); }), ErrorCode::invalid_shape);
  EXPECT_EQ(code_of([&] { apply_rope(heads, one, {.rotary_dim = 3}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { apply_rope(heads, one, {.rotary_dim = 6}); }), ErrorCode::invalid_argument);
  for (const float cap : {0.f, -1.f, -INFINITY, std::nanf("")})
    EXPECT_EQ(code_of([&] { soft_cap(a, cap); }), ErrorCode::invalid_argument) << cap;
  EXPECT_EQ(code_of([&] { gelu_tanh_and_mul(a, tensor_of(x, {2, 4}), a); }), ErrorCode::invalid_shape);
}

TEST(Rope, RefusesParamsOutOfRangeByName) {
  std::vector<float> x(8, 1.f);
  const std::vector<int32_t> positions = {3};
  const auto refused = [&](const RopeParams& params, const std::string& named) {
    try {
      apply_rope(tensor_of(x, {1, 1, 8}), positions, params);
      ADD_FAILURE() << "accepted: " << named;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
    }
  };
  const float inf = INFINITY, nan = std::nanf("");
  refused({.pairs = static_cast<RopePairs>(9)}, "pairs = 9");
  refused({.scaling = static_cast<RopeScaling>(7)}, "scaling = 7");
  for (const float bad : {0.f, -1.f, inf, -inf, nan}) {
    const std::string value = std::isnan(bad)   ? "nan"
                              : std::isinf(bad) ? (bad > 0 ? "inf" : "-inf")
                              : bad < 0         ? "-1"
                                                : "0";
    refused({.theta = bad}, "theta = " + value);
    refused({.linear_scale = bad}, "linear_scale = " + value);
    refused({.factor = bad, .original_context = 8}, "factor = " + value);
    refused({.attention_factor = bad}, "attention_factor = " + value);
  }
  refused({.original_context = -5}, "original_context = -5");
  for (const RopeScaling scaling : {RopeScaling::llama3, RopeScaling::yarn})
    for (const int context : {0, -5})
      refused({.scaling = scaling, .factor = 8.f, .original_context = context},
              "original_context = " + std::to_string(context));
  for (const float bad : {0.f, -1.f, 4.f, inf, nan})
    refused({.factor = 8.f, .original_context = 8, .low_freq_factor = bad}, "low_freq_factor");
  for (const float bad : {0.f, 1.f, inf, nan})
    refused({.factor = 8.f, .original_context = 8, .high_freq_factor = bad}, "high_freq_factor");
  RopeParams yarn{.scaling = RopeScaling::yarn, .factor = 8.f, .original_context = 8};
  for (const float bad : {0.f, -1.f, 32.f, inf, nan}) yarn.beta_slow = bad, refused(yarn, "beta_slow");
  yarn.beta_slow = 1.f;
  for (const float bad : {0.f, 1.f, inf, nan}) yarn.beta_fast = bad, refused(yarn, "beta_fast");
  yarn.beta_fast = 32.f, yarn.theta = 1.f;
  refused(yarn, "theta = 1");
  refused({.divisors = {1.f, 1.f}}, "divisors has 2 numbers for 4 pairs");
  for (const float bad : {0.f, -1.f, inf, nan}) refused({.divisors = {1.f, bad, 1.f, 1.f}}, "divisors[1] = ");
  EXPECT_EQ(x, std::vector<float>(8, 1.f));
}

}  // namespace
}  // namespace weft
