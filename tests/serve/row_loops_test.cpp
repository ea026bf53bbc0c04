// Loops over logits and weights, on each instruction set of this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "device/cpu/cpuid.h"
#include "serve/kernels/row.h"
#include "weft/error.h"

namespace weft::serve {
namespace {

const RowTable& loops_of(Isa isa) {
  switch (isa) {
    WEFT_RETURN_PER_ISA(row_loops)
    default: throw InternalError("an instruction set without loops");
  }
}

class RowLoops : public ::testing::TestWithParam<Isa> {
 protected:
  const RowTable& loops = loops_of(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Isas, RowLoops, ::testing::ValuesIn(supported_isas().begin(), supported_isas().end()),
                         [](const auto& param_info) { return std::string(to_string(param_info.param)); });

constexpr long long kSizes[] = {1, 3, 15, 16, 17, 255, 256, 257, 700, 4099};

std::vector<float> random_row(long long n) {
  std::mt19937 random(static_cast<uint32_t>(n));
  std::normal_distribution<float> normal(0.f, 6.f);
  std::vector<float> row(static_cast<size_t>(n));
  for (float& logit : row) logit = normal(random);
  if (n > 16) row[2] = NAN, row[9] = -INFINITY, row[row.size() - 1] = -200.f;
  return row;
}

std::vector<float> weights_of(const RowTable& loops, const std::vector<float>& row) {
  std::vector<float> weights(row.size(), -1.f);
  const auto n = static_cast<long long>(row.size());
  loops.weigh(row.data(), n, loops.largest(row.data(), n), 0.7f, weights.data());
  return weights;
}

TEST_P(RowLoops, FindTheLargestWhereverItIs) {
  for (const long long n : kSizes) {
    std::vector<float> row = random_row(n);
    for (size_t at = 0; at < row.size(); at += 1 + row.size() / 37) {
      const float before = std::exchange(row[at], 50.f);
      EXPECT_EQ(loops.largest(row.data(), n), 50.f) << n << " " << at;
      EXPECT_EQ(loops.first_equal(row.data(), n, 50.f), static_cast<long long>(at)) << n;
      row[at] = before;
    }
    EXPECT_EQ(loops.first_equal(row.data(), n, 51.f), n);
    std::fill(row.begin(), row.end(), NAN);
    EXPECT_EQ(loops.largest(row.data(), n), -INFINITY);
  }
}

TEST_P(RowLoops, WeighTokensAsTheExponentialDoes) {
  for (const long long n : kSizes) {
    const std::vector<float> row = random_row(n), weights = weights_of(loops, row);
    const double largest = static_cast<double>(loops.largest(row.data(), n));
    for (size_t i = 0; i < row.size(); ++i) {
      const double x = (static_cast<double>(row[i]) - largest) * static_cast<double>(0.7f);
      if (x < -87 || std::isnan(row[i])) {
        EXPECT_EQ(weights[i], 0.f) << row[i];
        continue;
      }
      // 2e-7 of the polynomial, and what x loses in fp32: two roundings of at most 2^-24 |x| each.
      const double bound = std::exp(x) * (2e-7 - 0x1p-23 * x);
      EXPECT_NEAR(weights[i], std::exp(x), bound) << row[i];
    }
  }
}

TEST_P(RowLoops, HaveTheSameBitsAsOnEveryMachine) {
  const RowTable& plain = loops_of(Isa::plain);
  for (const long long n : kSizes) {
    const std::vector<float> row = random_row(n), weights = weights_of(loops, row), other = weights_of(plain, row);
    EXPECT_EQ(std::memcmp(weights.data(), other.data(), weights.size() * sizeof(float)), 0) << n;
    const size_t blocks = (row.size() + RowTable::kBlock - 1) / RowTable::kBlock;
    std::vector<double> sums(blocks, -1), other_sums(blocks, -2);
    std::vector<float> most(blocks, -1), other_most(blocks, -2);
    for (const float least : {0.f, 1e-3f}) {
      loops.sum_blocks(weights.data(), n, least, sums.data(), most.data());
      plain.sum_blocks(weights.data(), n, least, other_sums.data(), other_most.data());
      EXPECT_EQ(sums, other_sums) << n;
      EXPECT_EQ(most, other_most) << n;
      double sum = 0;
      for (const float weight : weights) sum += weight >= least ? static_cast<double>(weight) : 0;
      EXPECT_NEAR(std::accumulate(sums.begin(), sums.end(), 0.), sum, sum * 0x1p-24 * RowTable::kBlock / 16);
    }
  }
}

TEST_P(RowLoops, SumWhatIsAtLeastEachLimit) {
  const RowTable& plain = loops_of(Isa::plain);
  const float limits[RowTable::kLimits] = {1.f, 0.5f, 0.1f, 1e-2f, 1e-4f, 1e-7f, 1e-20f, 0.f};
  for (const long long n : kSizes) {
    const std::vector<float> weights = weights_of(loops, random_row(n));
    double sums[RowTable::kLimits], others[RowTable::kLimits];
    loops.sum_from(weights.data(), n, limits, sums);
    plain.sum_from(weights.data(), n, limits, others);
    for (int k = 0; k < RowTable::kLimits; ++k) {
      double sum = 0;
      for (const float weight : weights) sum += weight >= limits[k] ? static_cast<double>(weight) : 0;
      EXPECT_NEAR(sums[k], sum, sum * 0x1p-24 * RowTable::kBlock / 16) << n << " " << limits[k];
      EXPECT_EQ(sums[k], others[k]) << n << " " << limits[k];
    }
  }
}

TEST_P(RowLoops, SelectWhatIsWithinTheBounds) {
  for (const long long n : kSizes) {
    const std::vector<float> weights = weights_of(loops, random_row(n));
    for (const auto& [above, most] : {std::pair(0.f, 1.f), std::pair(1e-6f, 1e-3f), std::pair(weights[0], 1.f)}) {
      std::vector<int> expected, found(weights.size(), -1);
      for (size_t i = 0; i < weights.size(); ++i)
        if (weights[i] > above && weights[i] <= most) expected.push_back(static_cast<int>(i));
      found.resize(static_cast<size_t>(loops.select(weights.data(), n, above, most, found.data())));
      EXPECT_EQ(found, expected) << n;
    }
  }
}

}  // namespace
}  // namespace weft::serve
