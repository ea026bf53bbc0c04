#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/ops/narrow.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {
namespace {

constexpr int64_t kRows = 12, kColumns = 10, kParts = 3;

std::vector<float> random_rows() {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kParts * kColumns);
  for (float& value : x) value = std::ldexp(normal(random), static_cast<int>(random() % 9) - 4);
  return x;
}

TEST(Quantize, RoundsToTheScaleOfItsPartAndBack) {
  const std::vector<float> x = random_rows();
  for (const int workers : {1, 3})
    for (const Narrow& narrow : kNarrow)
      for (const int64_t rows : {int64_t{1}, int64_t{4}, kRows})
        for (const int64_t heads : {int64_t{1}, kParts}) {
          WorkerTeam team(workers);
          std::vector<uint8_t> q(x.size());
          std::vector<float> scales(static_cast<size_t>(rows * heads), -1.f), back(x.size());
          const TensorView numbers(q.data(), narrow.dtype, {kRows, kParts, kColumns}),
              scale(scales.data(), DType::fp32, {rows, heads, 1});
          quantize(TensorView(x.data(), DType::fp32, {kRows, kParts, kColumns}), numbers, scale, Stream::cpu(team));
          dequantize(numbers, scale, TensorView(back.data(), DType::fp32, {kRows, kParts, kColumns}),
                     Stream::cpu(team));
          std::vector<float> most(scales.size());
          const auto part = [&](int64_t i) {
            const int64_t row = i / (kParts * kColumns), head = i / kColumns % kParts;
            return static_cast<size_t>(row / (kRows / rows) * heads + (heads == 1 ? 0 : head));
          };
          for (int64_t i = 0; i < kRows * kParts * kColumns; ++i)
            most[part(i)] = std::max(most[part(i)], std::abs(x[static_cast<size_t>(i)]));
          for (size_t i = 0; i < most.size(); ++i)
            ASSERT_EQ(scales[i], most[i] / static_cast<float>(narrow.most)) << to_string(narrow.dtype);
          for (int64_t i = 0; i < kRows * kParts * kColumns; ++i) {
            const double s = scales[part(i)], exact = x[static_cast<size_t>(i)] / s, code = stored(q, narrow.dtype, i);
            ASSERT_LE(std::abs(code - exact), half_step(narrow.dtype, exact)) << to_string(narrow.dtype);
            ASSERT_EQ(back[static_cast<size_t>(i)], static_cast<float>(s) * static_cast<float>(code));
          }
        }
}

TEST(Dequantize, ReadsEveryCode) {
  for (const Narrow& narrow : kNarrow) {
    std::vector<uint8_t> codes(256);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
    const int64_t n = 256 * 8 / bits_of(narrow.dtype);
    const float scale = 0.5f;
    std::vector<float> back(static_cast<size_t>(n));
    dequantize(TensorView(codes.data(), narrow.dtype, {1, n}), TensorView(&scale, DType::fp32, {1, 1}),
               TensorView(back.data(), DType::fp32, {1, n}));
    for (int64_t i = 0; i < n; ++i) {
      const bool infinite = narrow.dtype == DType::fp8_e5m2 && (i & 127) == 0x7c;
      const double expected = infinite ? (i < 128 ? INFINITY : -INFINITY) : 0.5 * stored(codes, narrow.dtype, i);
      const float got = back[static_cast<size_t>(i)];
      if (std::isnan(expected))
        ASSERT_TRUE(std::isnan(got)) << to_string(narrow.dtype) << " " << i;
      else
        ASSERT_EQ(got, expected) << to_string(narrow.dtype) << " " << i;
    }
  }
}

TEST(Quantize, SaysWhatHasNoNumber) {
  std::vector<float> x{1.f, NAN, 0.f, 0.f, INFINITY, 1.f, 1e-31f, 0.f}, scales(4), back(8, 7.f);
  std::vector<uint8_t> q(8);
  const TensorView view(x.data(), DType::fp32, {4, 2}), numbers(q.data(), DType::int8, {4, 2}),
      scale(scales.data(), DType::fp32, {4, 1});
  quantize(view, numbers, scale);
  dequantize(numbers, scale, TensorView(back.data(), DType::fp32, {4, 2}));
  for (const int i : {0, 1, 4, 5}) EXPECT_TRUE(std::isnan(back[static_cast<size_t>(i)])) << i;
  for (const int i : {2, 3, 6, 7}) EXPECT_EQ(back[static_cast<size_t>(i)], 0.f) << i;
}

TEST(Quantize, ScalesTheLargestFiniteNumber) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const Narrow& narrow : kNarrow) {
    const std::vector<float> x{kMax, -kMax};
    std::vector<float> scale(1), back(2);
    std::vector<uint8_t> q(2);
    const TensorView numbers(q.data(), narrow.dtype, {1, 2}), by(scale.data(), DType::fp32, {1, 1});
    quantize(TensorView(x.data(), DType::fp32, {1, 2}), numbers, by);
    dequantize(numbers, by, TensorView(back.data(), DType::fp32, {1, 2}));
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(back[i], x[i], 1e-6 * double{kMax}) << to_string(narrow.dtype);
  }
}

TEST(Quantize, RefusesWhatDoesNotFitAndWritesNothing) {
  std::vector<float> x(64), scales(64, -1.f);
  std::vector<uint8_t> q(64, 0xc5);
  const auto view = [&](DType dtype, std::initializer_list<int64_t> shape) {
    return TensorView(q.data(), dtype, shape);
  };
  const auto scale = [&](std::initializer_list<int64_t> shape) {
    return TensorView(scales.data(), DType::fp32, shape);
  };
  const auto refused = [&](const TensorView& from, const TensorView& to, const TensorView& by) {
    std::string code = "nothing";
    try {
      quantize(from, to, by);
    } catch (const Error& error) {
      code = to_string(error.code());
    }
    EXPECT_EQ(std::count(q.begin(), q.end(), 0xc5), 64);
    EXPECT_EQ(std::count(scales.begin(), scales.end(), -1.f), 64);
    return code;
  };
  const TensorView rows(x.data(), DType::fp32, {4, 2, 8});
  EXPECT_EQ(refused(rows, view(DType::bf16, {4, 2, 8}), scale({4, 2, 1})), "invalid_dtype");
  EXPECT_EQ(refused(rows, {}, scale({4, 2, 1})), "invalid_argument");
  EXPECT_EQ(refused(rows, view(DType::int8, {4, 2, 4}), scale({4, 2, 1})), "invalid_shape");
  EXPECT_EQ(refused(rows, view(DType::int8, {4, 2, 8}), scale({3, 2, 1})), "invalid_shape");
  EXPECT_EQ(refused(rows, view(DType::int8, {4, 2, 8}), scale({4, 2, 8})), "invalid_shape");
  EXPECT_EQ(refused(rows, view(DType::int8, {4, 2, 8}), scale({0, 2, 1})), "invalid_shape");
  EXPECT_EQ(refused(rows, view(DType::int8, {4, 2, 8}), scale({4, 1})), "invalid_shape");
  const TensorView odd(x.data(), DType::fp32, {4, 3});
  EXPECT_EQ(refused(odd, view(DType::int4, {4, 3}), scale({4, 1})), "invalid_shape");
}

}  // namespace
}  // namespace weft
