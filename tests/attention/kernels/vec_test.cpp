// The vector vocabulary, on each instruction set of this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "device/cpu/built_isas.h"
#include "device/cpu/cpuid.h"
#include "problem.h"
#include "vec_probe.h"

namespace weft {
namespace testing {
WEFT_DECLARE_PER_ISA(const VecProbe kProbe)
}  // namespace testing

namespace {

class Vec : public ::testing::TestWithParam<Isa> {
 protected:
  const testing::VecProbe& probe() const {
    using namespace testing;
    switch (GetParam()) {
      WEFT_RETURN_PER_ISA(kProbe)
      default: throw InternalError("an instruction set without a probe");
    }
  }
  float exp(float x) const {
    std::vector<float> in(16, x), out(16);
    probe().exp(in.data(), out.data());
    return out[0];
  }
};
INSTANTIATE_TEST_SUITE_P(Isas, Vec, ::testing::ValuesIn(supported_isas().begin(), supported_isas().end()),
                         [](const auto& param_info) { return std::string(to_string(param_info.param)); });

float from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

TEST_P(Vec, ExpIsWithinTwoUlps) {
  for (float x = -87.f; x < 88.7f; x += 0.0137f) {
    const double expected = std::exp(static_cast<double>(x));
    EXPECT_NEAR(exp(x), expected, expected * 0x1p-22) << x;
  }
  for (float x = -103.f; x < -87.f; x += 0.37f) EXPECT_NEAR(exp(x), std::exp(static_cast<double>(x)), 0x1p-148) << x;
}

TEST_P(Vec, ExpAtItsEnds) {
  EXPECT_EQ(exp(0.f), 1.f);
  EXPECT_EQ(exp(-0.f), 1.f);
  EXPECT_EQ(exp(-INFINITY), 0.f);
  EXPECT_EQ(exp(-200.f), 0.f);
  EXPECT_EQ(exp(INFINITY), INFINITY);
  EXPECT_EQ(exp(89.f), INFINITY);
}

TEST_P(Vec, ExpOfEveryKindOfNanIsNan) {
  for (int bit = 0; bit < 23; ++bit)
    for (const uint32_t sign : {0u, 0x80000000u}) {
      EXPECT_TRUE(std::isnan(exp(from_bits(sign | 0x7f800000u | 1u << bit)))) << bit;
      EXPECT_TRUE(std::isnan(exp(from_bits(sign | 0x7fffffffu >> 0 | 1u << bit)))) << bit;
    }
}

TEST_P(Vec, PowersOfTwoForBf16AreWithinFourMillionths) {
  if (probe().exp2_for_bf16 == nullptr)
    GTEST_SKIP() << "these vectors have no dot product of bf16, which alone asks for such exponentials";
  const auto exp2 = [&](float x) {
    std::vector<float> in(16, x), out(16);
    probe().exp2_for_bf16(in.data(), out.data());
    return out[15];
  };
  for (float x = -125.9f; x < 1; x += 0.0173f) {
    const double expected = std::exp2(static_cast<double>(x));
    EXPECT_NEAR(exp2(x), expected, expected * 4e-6) << x;
  }
  EXPECT_EQ(exp2(0.f), 1.f);
  EXPECT_EQ(exp2(-3.f), 0.125f);
  EXPECT_EQ(exp2(-1e-41f), 1.f);
  EXPECT_NEAR(exp2(std::nextafter(-3.f, -4.f)), 0.125f, 1e-7f);
  EXPECT_EQ(exp2(-200.f), 0.f);
  EXPECT_EQ(exp2(-INFINITY), 0.f);
  EXPECT_TRUE(std::isnan(exp2(NAN)));
}

TEST_P(Vec, Expm1IsWithinTwoUlpsNearZeroToo) {
  const auto expm1 = [&](float x) {
    const std::vector<float> in(16, x);
    std::vector<float> out(16);
    probe().expm1(in.data(), out.data());
    return out[0];
  };
  for (float x = -30.f; x < 60.f; x += 0.0137f) {
    const double expected = std::expm1(static_cast<double>(x));
    EXPECT_NEAR(expm1(x), expected, std::abs(expected) * 0x1p-22) << x;
  }
  for (float x = 1e-30f; x < 0.5f; x *= 1.9f)
    for (const float signed_x : {x, -x}) {
      const double expected = std::expm1(static_cast<double>(signed_x));
      EXPECT_NEAR(expm1(signed_x), expected, std::abs(expected) * 0x1p-22) << signed_x;
    }
  EXPECT_EQ(expm1(0.f), 0.f);
  EXPECT_EQ(expm1(-INFINITY), -1.f);
  EXPECT_TRUE(std::isfinite(expm1(INFINITY)));
  EXPECT_TRUE(std::isnan(expm1(NAN)));
}

TEST_P(Vec, SplitsEveryNumberOf16BitsIntoTwoSignedBytes) {
  const int n = probe().lanes;
  std::vector<int> x(static_cast<size_t>(n));
  std::vector<signed char> high(x.size()), low(x.size());
  for (int first = -32768; first <= 32767 - 128; first += n) {  // above, the high byte would be 128
    for (int i = 0; i < n; ++i) x[static_cast<size_t>(i)] = first + i;
    probe().split_i16(x.data(), high.data(), low.data());
    for (size_t i = 0; i < x.size() && x[i] <= 32767 - 128; ++i) ASSERT_EQ(256 * high[i] + low[i], x[i]);
  }
}

TEST_P(Vec, DotShortsAddsTwoProductsOfSignedNumbers) {
  const auto n = static_cast<size_t>(probe().lanes);
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    std::vector<int> acc(n), sum(n);
    std::vector<int16_t> a(2 * n), b(2 * n);
    for (int& value : acc) value = static_cast<int>(random() >> 4);
    for (size_t i = 0; i < 2 * n; ++i) {
      a[i] = static_cast<int16_t>(round == 0 ? -32767 : random());
      b[i] = static_cast<int16_t>(random() % 16001 - 8000);
    }
    probe().dot_shorts(acc.data(), a.data(), b.data(), sum.data());
    for (size_t i = 0; i < n; ++i)
      ASSERT_EQ(static_cast<uint32_t>(sum[i]),
                static_cast<uint32_t>(int64_t{acc[i]} + a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1]));
  }
}

TEST_P(Vec, TransposeSwapsRowsAndColumns) {
  const int n = probe().lanes;
  std::vector<float> x(static_cast<size_t>(n * n)), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  probe().transpose(x.data(), y.data());
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) EXPECT_EQ(y[static_cast<size_t>(i * n + j)], x[static_cast<size_t>(j * n + i)]);
}

TEST_P(Vec, SumEachSumsRows) {
  const int n = probe().lanes;
  std::vector<float> x(static_cast<size_t>(n * n)), y(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 97);
  probe().sum_each(x.data(), y.data());
  for (int i = 0; i < n; ++i) {
    float sum = 0;
    for (int j = 0; j < n; ++j) sum += x[static_cast<size_t>(i * n + j)];
    EXPECT_EQ(y[static_cast<size_t>(i)], sum) << i;  // small integers: exact in any order
  }
}

TEST_P(Vec, EveryHalfWidensToItsNumberAndBack) {
  for (const int element : {1, 2}) {
    const DType dtype = element == 1 ? DType::fp16 : DType::bf16;
    std::vector<uint16_t> x(65536), back(65536);
    std::vector<float> y(65536);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
    probe().widen(x.data(), element, 65536, y.data());
    probe().narrow(y.data(), 65536, back.data(), element);
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = testing::get(x.data(), dtype, static_cast<int64_t>(i));
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(y[i]) && std::isnan(testing::get(back.data(), dtype, static_cast<int64_t>(i)))) << i;
      } else {
        ASSERT_EQ(y[i], static_cast<float>(expected)) << i;
        ASSERT_EQ(back[i], x[i]) << i;
      }
    }
  }
}

TEST_P(Vec, EveryByteWidensToItsNumbers) {
  std::vector<uint8_t> x(256);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i);
  for (const auto& [element, dtype] :
       {std::pair{3, DType::fp8_e4m3}, {4, DType::fp8_e5m2}, {5, DType::int8}, {6, DType::int4}})
    for (const int n : {512, 256, 8, 24}) {
      if (n > 256 * 8 / bits_of(dtype)) continue;
      std::vector<float> y(static_cast<size_t>(n));
      probe().widen(x.data(), element, n, y.data());
      for (int i = 0; i < n; ++i) {
        const auto code = static_cast<int8_t>(x[static_cast<size_t>(dtype == DType::int4 ? i / 2 : i)]);
        const int exponent = code >> (dtype == DType::fp8_e4m3 ? 3 : 2) & (dtype == DType::fp8_e4m3 ? 15 : 31),
                  mantissa = code & (dtype == DType::fp8_e4m3 ? 7 : 3);
        double expected = code;
        if (dtype == DType::int4) expected = static_cast<int8_t>(code << (i % 2 == 0 ? 4 : 0)) >> 4;
        if (dtype == DType::fp8_e4m3)
          expected = (code & 127) == 127 ? NAN
                     : exponent == 0     ? std::ldexp(mantissa, -9)
                                         : std::ldexp(8 + mantissa, exponent - 10);
        if (dtype == DType::fp8_e5m2)
          expected = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
                     : exponent == 0 ? std::ldexp(mantissa, -16)
                                     : std::ldexp(4 + mantissa, exponent - 17);
        if (bits_of(dtype) == 8 && dtype != DType::int8 && code < 0) expected = -expected;
        const float got = y[static_cast<size_t>(i)];
        ASSERT_TRUE(got == static_cast<float>(expected) || (std::isnan(got) && std::isnan(expected)))
            << to_string(dtype) << " " << i << ": " << got << ", not " << expected;
      }
    }
}

TEST_P(Vec, NarrowingRoundsToTheNearestAndTiesToEven) {
  std::mt19937 random(1);
  std::vector<float> x(8192);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = from_bits(static_cast<uint32_t>(random()));
    if (i % 3 == 0)
      x[i] = static_cast<float>(std::ldexp(static_cast<double>(random() % 8192), -static_cast<int>(random() % 40)));
    if (i % 7 == 0) x[i] = static_cast<float>(65472 + random() % 80);  // about the largest fp16
  }
  for (const int element : {1, 2}) {
    const DType dtype = element == 1 ? DType::fp16 : DType::bf16;
    std::vector<uint16_t> got(x.size());
    probe().narrow(x.data(), static_cast<int>(x.size()), got.data(), element);
    for (size_t i = 0; i < x.size(); ++i) {
      uint16_t expected;
      testing::put(&expected, dtype, 0, x[i]);
      if (std::isnan(x[i]))
        ASSERT_TRUE(std::isnan(testing::get(got.data(), dtype, static_cast<int64_t>(i))));
      else
        ASSERT_EQ(got[i], expected) << x[i] << " " << to_string(dtype);
    }
  }
}

}  // namespace
}  // namespace weft
