// Loops over logits and their weights, on each instruction set of this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "device/cpu/cpuid.h"
#include "ops/kernels/draw.h"
#include "tests/ops/scalar_math.h"
#include "weft/error.h"

namespace weft::ops {
namespace {

using Weights = std::vector<int>;
using Sums = std::vector<unsigned long long>;

const DrawTable& loops_of(Isa isa) {
  switch (isa) {
    WEFT_RETURN_PER_ISA(draw_loops)
    default: throw InternalError("an instruction set without loops");
  }
}

class DrawLoops : public ::testing::TestWithParam<Isa> {
 protected:
  const DrawTable& loops = loops_of(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Isas, DrawLoops, ::testing::ValuesIn(supported_isas().begin(), supported_isas().end()),
                         [](const auto& param_info) { return std::string(to_string(param_info.param)); });

constexpr long long kSizes[] = {1, 3, 15, 16, 17, 63, 64, 65, 700, 4099};
constexpr float kScale = 0.7f;

long long length(const std::vector<float>& row) { return static_cast<long long>(row.size()); }

std::vector<float> random_row(long long n) {
  std::mt19937 random(static_cast<uint32_t>(n));
  std::normal_distribution<float> normal(0.f, 6.f);
  std::vector<float> row(static_cast<size_t>(n));
  for (float& logit : row) logit = normal(random);
  if (n > 16) row[2] = NAN, row[9] = -INFINITY, row[row.size() - 1] = -200.f, row[5] = row[11];
  return row;
}
float largest_of(const std::vector<float>& row) {
  float largest = -INFINITY;
  for (const float logit : row) largest = logit > largest ? logit : largest;
  return largest;
}

// A row of logits, or of probabilities, and how these weigh.
struct Row {
  Row(const DrawTable& loops, long long n, bool of_probabilities)
      : are_probabilities(of_probabilities),
        weighing(of_probabilities ? loops.probabilities : loops.logits),
        numbers(random_row(n)) {
    if (are_probabilities)
      for (float& x : numbers) x = std::exp(1.5f * x);
    find_largest();
  }
  void find_largest() {
    largest = largest_of(numbers);
    scale = are_probabilities ? tile::scale_of_shares(largest) : kScale;
  }
  float measure(float x) const {
    return are_probabilities ? tile::draw_share<ScalarMath>(x, largest, scale)
                             : tile::draw_exponent<ScalarMath>(x, largest, scale);
  }
  int weight(float x) const {
    return are_probabilities ? tile::share_weight<ScalarMath>(measure(x)) : tile::draw_weight<ScalarMath>(measure(x));
  }

  bool are_probabilities;
  const DrawTable::Weighing& weighing;
  std::vector<float> numbers;
  float largest = 0.f, scale = 0.f;
};

TEST_P(DrawLoops, FindTheLargestOfBlocksWhereverItIs) {
  for (const long long n : kSizes) {
    std::vector<float> row = random_row(n);
    std::vector<float> largest((row.size() + DrawTable::kBlock - 1) / DrawTable::kBlock);
    for (size_t at = 0; at < row.size(); at += 1 + row.size() / 37) {
      const float before = std::exchange(row[at], 50.f);
      loops.largest_of_blocks(row.data(), n, largest.data());
      for (size_t block = 0; block < largest.size(); ++block) {
        const auto begin = row.begin() + static_cast<std::ptrdiff_t>(block * DrawTable::kBlock);
        const auto size = std::min<std::ptrdiff_t>(DrawTable::kBlock, row.end() - begin);
        EXPECT_EQ(largest[block], largest_of({begin, begin + size})) << n << " " << at;
      }
      EXPECT_EQ(loops.first_equal(row.data(), n, 50.f), static_cast<long long>(at)) << n;
      row[at] = before;
    }
    EXPECT_EQ(loops.first_equal(row.data(), n, 51.f), n);
    EXPECT_EQ(loops.first_equal(row.data(), n, NAN), n);
    std::fill(row.begin(), row.end(), NAN);
    loops.largest_of_blocks(row.data(), n, largest.data());
    for (const float of_block : largest) EXPECT_EQ(of_block, -INFINITY);
  }
}

void expect_weights(const DrawTable& loops, const Row& given) {
  const std::vector<float>& row = given.numbers;
  const long long n = length(row);
  Weights weights(row.size(), -1), expected;
  Sums sums((row.size() + DrawTable::kBlock - 1) / DrawTable::kBlock, 7), expected_sums(sums.size());
  for (size_t i = 0; i < row.size(); ++i) {
    expected.push_back(given.weight(row[i]));
    expected_sums[i / DrawTable::kBlock] += static_cast<unsigned>(expected.back());
  }
  given.weighing.weigh(row.data(), n, given.largest, given.scale, weights.data(), sums.data());
  EXPECT_EQ(weights, expected) << n;
  EXPECT_EQ(sums, expected_sums) << n;
  for (const auto& [logit, weight] : {std::pair(-INFINITY, 1), std::pair(row[0], 1), std::pair(-2.f, 5000)}) {
    std::ranges::fill(expected_sums, 0);
    for (size_t i = 0; i < row.size(); ++i)
      if (row[i] >= logit && expected[i] >= weight)
        expected_sums[i / DrawTable::kBlock] += static_cast<unsigned>(expected[i]);
    loops.sum_blocks(row.data(), weights.data(), n, logit, weight, sums.data());
    EXPECT_EQ(sums, expected_sums) << n;
  }
  loops.sum_blocks(row.data(), weights.data(), n, NAN, 1, sums.data());
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0ull), 0u);
}

TEST_P(DrawLoops, WeighAndSumAsTheTextForOneNumberDoes) {
  for (const long long n : kSizes) {
    Row row(loops, n, false);
    expect_weights(loops, row);
    row.numbers[row.numbers.size() / 2] = INFINITY;
    row.find_largest();
    expect_weights(loops, row);
    Row probabilities(loops, n, true);
    expect_weights(loops, probabilities);
    for (float& x : probabilities.numbers) x *= 1e-38f / probabilities.largest;  // some of them subnormal
    probabilities.find_largest();
    expect_weights(loops, probabilities);
  }
}

// A share of 2^-30 is the least that weighs.
TEST(DrawWeights, OfProbabilities) {
  const auto weight = [](float x) {
    return tile::share_weight<ScalarMath>(tile::draw_share<ScalarMath>(x, 3.f, 1.f / 3));
  };
  EXPECT_EQ(weight(3.f), tile::kLargestWeight);
  EXPECT_EQ(weight(1.5f), tile::kLargestWeight / 2);
  EXPECT_EQ(weight(3.f * 0x1p-29f), 2);
  EXPECT_EQ(weight(3.1f * 0x1p-30f), 1);
  for (const float nothing : {2.9f * 0x1p-30f, 0.f, -0.f, -1.f, NAN}) EXPECT_EQ(weight(nothing), 0) << nothing;
  EXPECT_EQ(tile::weight_of_one(1.f), 1ull << 30);
  EXPECT_EQ(tile::weight_of_one(tile::scale_of_shares(1e-40f)), 1ull << 49);
  EXPECT_EQ(tile::weight_of_one(tile::scale_of_shares(4.f)), 1ull << 28);
}

// The weights of a whole block may be the largest that there are.
TEST_P(DrawLoops, SumBlocksOfTheLargestWeight) {
  const std::vector<float> row(3 * DrawTable::kBlock, 5.f);
  Weights weights(row.size());
  Sums sums(3);
  loops.logits.weigh(row.data(), length(row), 5.f, 1.f, weights.data(), sums.data());
  EXPECT_EQ(sums, Sums(3, static_cast<unsigned long long>(DrawTable::kBlock) << 30));
  loops.sum_blocks(row.data(), weights.data(), length(row), 5.f, 1, sums.data());
  EXPECT_EQ(sums, Sums(3, static_cast<unsigned long long>(DrawTable::kBlock) << 30));
}

// `limit`: a measure.
void expect_bins(const Row& given, float limit) {
  const std::vector<float>& row = given.numbers;
  const long long n = length(row);
  const auto& [largest, scale] = std::pair(given.largest, given.scale);
  Weights weights(row.size());
  Sums sums(row.size()), bins(DrawTable::kBins + 1), counts(DrawTable::kBins + 1);
  given.weighing.weigh(row.data(), n, largest, scale, weights.data(), sums.data());
  given.weighing.add_to_bins(row.data(), weights.data(), n, largest, scale, DrawTable::kBins, false, bins.data());
  given.weighing.add_to_bins(row.data(), weights.data(), n, largest, scale, DrawTable::kBins, true, counts.data());
  std::vector<int> ids(row.size());
  size_t seen = 0;
  float least_before = INFINITY;
  for (int bin = 0; bin < DrawTable::kBins; ++bin) {
    const auto in_bin = static_cast<size_t>(bin);
    if (counts[in_bin] == 0) continue;
    ids.resize(row.size());
    ids.resize(static_cast<size_t>(given.weighing.select_bin(row.data(), n, largest, scale, bin, ids.data())));
    EXPECT_EQ(ids.size(), counts[in_bin]) << bin;
    EXPECT_TRUE(std::ranges::is_sorted(ids));
    unsigned long long sum = 0;
    float least = INFINITY;
    for (const int id : ids) {
      const float logit = row[static_cast<size_t>(id)];
      EXPECT_LT(logit, least_before);
      least = std::min(least, logit);
      sum += static_cast<unsigned>(weights[static_cast<size_t>(id)]);
    }
    EXPECT_EQ(sum, bins[in_bin]) << bin;
    least_before = least;
    seen += ids.size();
  }
  EXPECT_EQ(seen, static_cast<size_t>(std::ranges::count_if(weights, [](int weight) { return weight > 0; })));
  const int few = given.weighing.bins_down_to(limit);
  Sums first(DrawTable::kBins + 1);
  given.weighing.add_to_bins(row.data(), weights.data(), n, largest, scale, few, false, first.data());
  for (size_t i = 0; i < row.size(); ++i)
    if (given.measure(row[i]) >= limit) seen = 0;
  first[static_cast<size_t>(few)] = 0;  // anything
  for (size_t bin = 0; bin < DrawTable::kBins; ++bin)
    EXPECT_EQ(first[bin], bin < static_cast<size_t>(few) ? bins[bin] : 0u) << bin;
  EXPECT_EQ(seen, 0u);
}

TEST_P(DrawLoops, PutTokensIntoBinsInTheOrderOfTheirLogits) {
  for (const long long n : kSizes) {
    expect_bins(Row(loops, n, false), -3.f);
    expect_bins(Row(loops, n, true), 0.05f);
  }
  EXPECT_EQ(loops.logits.bins_down_to(-21.f), DrawTable::kBins);
  EXPECT_EQ(loops.probabilities.bins_down_to(0x1p-31f), DrawTable::kBins);
}

TEST_P(DrawLoops, SelectWhatIsAtLeastALimit) {
  for (const long long n : kSizes) {
    const std::vector<float> row = random_row(n);
    for (const float least : {-INFINITY, 0.f, row[0], 100.f}) {
      std::vector<int> expected, found(row.size(), -1);
      for (size_t i = 0; i < row.size(); ++i)
        if (row[i] >= least) expected.push_back(static_cast<int>(i));
      found.resize(static_cast<size_t>(loops.select(row.data(), n, least, found.data())));
      EXPECT_EQ(found, expected) << n;
    }
  }
}

TEST_P(DrawLoops, SumExponentials) {
  const DrawTable& plain = loops_of(Isa::plain);
  for (const long long n : kSizes) {
    const std::vector<float> row = random_row(n);
    const float largest = largest_of(row);
    const double sum = loops.sum_of_exp(row.data(), n, largest);
    double expected = 0;
    for (const float logit : row)
      if (logit >= -200.f) expected += std::exp(static_cast<double>(logit) - static_cast<double>(largest));
    EXPECT_NEAR(sum, expected, 1e-6 * expected) << n;
    EXPECT_EQ(sum, plain.sum_of_exp(row.data(), n, largest)) << n;
  }
}

}  // namespace
}  // namespace weft::ops
