// Kernels whose text runs here and compiles for every architecture (tests/jit/nvrtc_test.cpp) have the right values.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "tests/simt/kernels/args.h"
#include "tests/simt/machine/device.h"
#include "tests/simt/machine/machine.h"

extern "C" void weft_sum(weft::SumArgs args);
extern "C" void weft_gemm_fp16(weft::GemmArgs args);
extern "C" void weft_gemm_bf16(weft::GemmArgs args);

namespace weft::simt {
namespace {

TEST(SimtSum, IsTheSameInEveryOrderOfThreads) {
  std::mt19937 random(20261123);
  std::vector<float> values(5000);
  double expected = 0;
  for (float& value : values) {
    value = std::uniform_real_distribution<float>(-1, 1)(random);
    expected += value;
  }
  Memory memory;
  const auto x = memory.make("x", values);
  const auto shares = memory.make<float>("shares", 4);
  const auto arrived = memory.make<unsigned>("arrived", std::vector<unsigned>{0});
  const auto total = memory.make<float>("total", 1);
  run_in_all_orders(memory, {.ctas = 4, .threads = 128, .shared_bytes = 16}, [&] {
    weft_sum({x.data(), 5000, shares.data(), arrived.data(), total.data()});
  });
  EXPECT_NEAR(total[0], expected, 1e-3);
  EXPECT_EQ(arrived[0], 0u);
}

struct Shape {
  int m, n, k;
};
class SimtGemm : public testing::TestWithParam<std::tuple<Shape, bool>> {};

// Integers up to 8 in products of at most 100 terms: exact in any order of sums.
TEST_P(SimtGemm, IsExactOnIntegers) {
  const auto [shape, bf16] = GetParam();
  const auto [m, n, k] = shape;
  std::mt19937 random(20261123);
  const auto matrix = [&](int rows) {
    std::vector<float> values(static_cast<size_t>(rows * k));
    for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 17) - 8);
    return values;
  };
  const auto halves = [&](const std::vector<float>& values) {
    std::vector<unsigned short> bits;
    for (const float value : values)
      bits.push_back(bf16 ? static_cast<unsigned short>(std::bit_cast<unsigned>(value) >> 16) : to_fp16(value));
    return bits;
  };
  const std::vector<float> a = matrix(m), b = matrix(n);
  Memory memory;
  const auto a_bits = memory.make("a", halves(a)), b_bits = memory.make("b", halves(b));
  const auto c = memory.make<float>("c", static_cast<size_t>(m * n));
  const GemmArgs args{a_bits.data(), b_bits.data(), c.data(), m, n, k};
  const int ctas = (m + 63) / 64 * ((n + 63) / 64);
  run_in_all_orders(memory, {.ctas = ctas, .threads = 128, .shared_bytes = 16384},
                    [&] { bf16 ? weft_gemm_bf16(args) : weft_gemm_fp16(args); });
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float expected = 0;
      for (int e = 0; e < k; ++e) expected += a[static_cast<size_t>(i * k + e)] * b[static_cast<size_t>(j * k + e)];
      ASSERT_EQ(c[static_cast<size_t>(i * n + j)], expected) << i << ", " << j;
    }
}
INSTANTIATE_TEST_SUITE_P(Shapes, SimtGemm,
                         testing::Combine(testing::Values(Shape{64, 64, 32}, Shape{1, 1, 8}, Shape{65, 130, 40},
                                                          Shape{100, 63, 96}),
                                          testing::Bool()));

}  // namespace
}  // namespace weft::simt
