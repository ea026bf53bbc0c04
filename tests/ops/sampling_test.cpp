#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "weft/error.h"
#include "weft/ops.h"

namespace weft::test::sampling {
namespace {

constexpr float kInf = INFINITY;

std::vector<float> random_logits(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.f, 2.f);
  std::vector<float> logits(n);
  for (float& x : logits) x = normal(random);
  return logits;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  double sum = 0;
  for (float x : logits) sum += p.emplace_back(std::exp((x - largest) / temperature));
  for (double& x : p) x /= sum;
  return p;
}

std::map<int32_t, int> draw(const std::vector<float>& logits, const SamplingParams& params, int count,
                            uint64_t seed = 1) {
  Philox generator{seed};
  std::map<int32_t, int> counts;
  for (int i = 0; i < count; ++i) ++counts[sample(logits, params, generator)];
  return counts;
}

std::set<int32_t> drawn(const std::vector<float>& logits, const SamplingParams& params) {
  std::set<int32_t> ids;
  for (auto [id, count] : draw(logits, params, 3000)) ids.insert(id);
  return ids;
}

TEST(Sample, DrawsFromTheSoftmaxAtAnyTemperature) {
  const std::vector<float> logits = random_logits(20, 3);
  for (float temperature : {0.3f, 1.f, 2.5f}) {
    constexpr int kDraws = 40000;
    const auto counts = draw(logits, {.temperature = temperature}, kDraws);
    const std::vector<double> p = softmax(logits, double{temperature});
    double chi_square = 0;
    int degrees = -1;
    double rest_expected = 0, rest_counted = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const auto found = counts.find(static_cast<int32_t>(i));
      const double counted = found == counts.end() ? 0 : found->second, expected = p[i] * kDraws;
      if (expected < 5) {
        rest_expected += expected, rest_counted += counted;
        continue;
      }
      chi_square += (counted - expected) * (counted - expected) / expected;
      ++degrees;
    }
    if (rest_expected >= 1)
      chi_square += (rest_counted - rest_expected) * (rest_counted - rest_expected) / rest_expected, ++degrees;
    EXPECT_LT(chi_square, degrees + 4 * std::sqrt(2. * degrees)) << temperature;  // four standard deviations
  }
}

TEST(Sample, TakesTheLeastIdOfEqualsWhenGreedy) {
  Philox generator{1};
  EXPECT_EQ(sample(std::vector{1.f, 3.f, 3.f, 2.f}, {.temperature = 0.f}, generator), 1);
  EXPECT_EQ(sample(std::vector{-kInf, std::nanf(""), -5.f, -7.f}, {.temperature = 0.f}, generator), 2);
  EXPECT_EQ(sample(std::vector{-5.f, kInf, 3.f, kInf}, {.temperature = 0.f}, generator), 1);
  EXPECT_EQ(generator, Philox{1});  // greedy draws nothing
}

TEST(Sample, KeepsTheTopKWithTiesToTheLeastId) {
  const std::vector<float> logits = {1.f, 2.f, 2.f, 2.f, 0.f, 3.f};
  EXPECT_EQ(drawn(logits, {.top_k = 1}), (std::set<int32_t>{5}));
  EXPECT_EQ(drawn(logits, {.top_k = 3}), (std::set<int32_t>{5, 1, 2}));
  EXPECT_EQ(drawn(logits, {.top_k = 99}).size(), 6u);
}

TEST(Sample, KeepsTheShortestRunThatReachesTopP) {
  std::vector<float> logits;
  for (double p : {0.1, 0.4, 0.25, 0.2, 0.05}) logits.push_back(static_cast<float>(std::log(p)));
  EXPECT_EQ(drawn(logits, {.top_p = 0.39f}), (std::set<int32_t>{1}));
  EXPECT_EQ(drawn(logits, {.top_p = 0.41f}), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(drawn(logits, {.top_p = 0.86f}), (std::set<int32_t>{0, 1, 2, 3}));
  // After top_k = 2 the two left are 0.4 and 0.25 of 0.65.
  EXPECT_EQ(drawn(logits, {.top_k = 2, .top_p = 0.6f}), (std::set<int32_t>{1}));
  EXPECT_EQ(drawn(logits, {.top_k = 2, .top_p = 0.63f}), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(drawn(logits, {.top_p = 1e-9f}), (std::set<int32_t>{1}));
}

TEST(Sample, KeepsNoMoreWhereTheSumIsTopPItself) {
  EXPECT_EQ(drawn({0.f, 0.f, 0.f, 0.f}, {.top_p = 0.5f}), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(drawn({0.f, 0.f, 0.f, 0.f}, {.top_k = 4, .top_p = 0.5f}), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(drawn({0.f, 0.f, 0.f, 0.f}, {.top_k = 3, .top_p = 0.5f, .filter_order = FilterOrder::joint}),
            (std::set<int32_t>{0, 1}));
}

TEST(Sample, KeepsTopPOfALargeVocabularyExactly) {
  const std::vector<float> logits = random_logits(5000, 4);
  const std::vector<double> p = softmax(logits, 1);
  std::vector<int32_t> order(p.size());
  for (size_t i = 0; i < p.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]; });
  double sum = 0;
  std::set<int32_t> allowed;
  for (int32_t id : order) {
    allowed.insert(id);
    if ((sum += p[static_cast<size_t>(id)]) >= 0.7) break;
  }
  ASSERT_GT(allowed.size(), 100u);
  std::set<int32_t> seen;
  for (auto [id, count] : draw(logits, {.top_p = 0.7f}, 2000)) seen.insert(id);
  EXPECT_TRUE(std::includes(allowed.begin(), allowed.end(), seen.begin(), seen.end()));
  EXPECT_GT(seen.size(), 100u);
}

TEST(Sample, DropsWhatIsBelowMinPOfTheMostProbable) {
  std::vector<float> logits;
  for (double p : {0.5, 0.3, 0.12, 0.08}) logits.push_back(static_cast<float>(std::log(p)));
  EXPECT_EQ(drawn(logits, {.min_p = 0.2f}), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(drawn(logits, {.min_p = 1.f}), (std::set<int32_t>{0}));
}

TEST(Sample, GivesTheSameIdsForTheSameSeedEverywhere) {
  std::mt19937_64 random(8);
  std::vector<float> logits(49152);
  for (float& x : logits) x = static_cast<float>(random() % 20001) / 1000.f - 10.f;
  const auto ids = [&](const SamplingParams& params) {
    Philox generator{42};
    std::vector<int32_t> drawn_ids(6);
    for (int32_t& id : drawn_ids) id = sample(logits, params, generator);
    return drawn_ids;
  };
  // Recorded: whatever the machine and its instruction set, these must not change.
  EXPECT_EQ(ids({.temperature = 0.8f}), (std::vector<int32_t>{23360, 15968, 32553, 33095, 41341, 14408}));
  EXPECT_EQ(ids({.temperature = 1.3f, .top_k = 900, .top_p = 0.9f}),
            (std::vector<int32_t>{23564, 15423, 32810, 33261, 41245, 13759}));
  EXPECT_EQ(ids({.top_p = 0.5f, .min_p = 0.01f}), (std::vector<int32_t>{23450, 16039, 32805, 33293, 41325, 14370}));
}

TEST(Sample, NeverDrawsWhatIsRuledOutOrNoNumber) {
  std::vector<float> logits(50, -kInf);
  logits[7] = 1.f, logits[9] = 0.f, logits[11] = std::nanf("");
  EXPECT_EQ(drawn(logits, {}), (std::set<int32_t>{7, 9}));
  EXPECT_EQ(drawn(logits, {.top_k = 10, .top_p = 0.999f, .min_p = 1e-6f}), (std::set<int32_t>{7, 9}));
}

TEST(Sample, GivesAllTheMassToInfiniteLogitsInEqualParts) {
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.temperature = 1e-3f}, SamplingParams{.temperature = 100.f},
        SamplingParams{.top_k = 4}, SamplingParams{.top_p = 0.99f}, SamplingParams{.min_p = 0.5f},
        SamplingParams{.top_k = 3, .top_p = 0.99f, .min_p = 1.f},
        SamplingParams{.top_k = 3, .top_p = 0.99f, .filter_order = FilterOrder::joint}}) {
    EXPECT_EQ(drawn({0.f, kInf, 1.f}, params), (std::set<int32_t>{1}));
    const auto counts = draw({kInf, 3e38f, std::nanf(""), kInf, -kInf}, params, 1000);
    ASSERT_EQ(counts.size(), 2u);
    EXPECT_NEAR(counts.at(0), 500, 4 * std::sqrt(250.));  // four standard deviations
    EXPECT_EQ(counts.at(0) + counts.at(3), 1000);
  }
  EXPECT_EQ(drawn({0.f, kInf, kInf}, {.top_k = 1}), (std::set<int32_t>{1}));
  EXPECT_EQ(drawn({kInf, kInf, kInf, 0.f}, {.top_p = 0.6f}), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(drawn({kInf, kInf, kInf, 0.f}, {.top_k = 2, .top_p = 0.6f, .filter_order = FilterOrder::joint}),
            (std::set<int32_t>{0, 1}));
}

TEST(Sample, RefusesParamsOutOfRangeAndLogitsWithoutANumber) {
  Philox generator{1};
  const std::vector<float> good = {1.f, 2.f}, bad = {-kInf, std::nanf("")};
  for (const SamplingParams& params :
       {SamplingParams{.temperature = -1.f}, SamplingParams{.temperature = kInf}, SamplingParams{.temperature = NAN},
        SamplingParams{.top_k = -1}, SamplingParams{.top_p = 0.f}, SamplingParams{.top_p = 1.1f},
        SamplingParams{.top_p = NAN}, SamplingParams{.min_p = -0.1f}, SamplingParams{.min_p = 2.f},
        SamplingParams{.filter_order = static_cast<FilterOrder>(2)},
        SamplingParams{.filter_order = static_cast<FilterOrder>(7)}})
    EXPECT_THROW(sample(good, params, generator), Error);
  EXPECT_THROW(sample(bad, {}, generator), Error);
  EXPECT_THROW(sample({}, {}, generator), Error);
  EXPECT_EQ(sample(good, {.temperature = 1e-40f}, generator), 1);
}

TEST(LogProbability, IsTheLogOfTheSoftmax) {
  const std::vector<float> logits = random_logits(1000, 5);
  const std::vector<double> p = softmax(logits, 1);
  double sum = 0;
  for (int32_t i = 0; i < 1000; ++i) {
    ASSERT_NEAR(log_probability(logits, i), std::log(p[static_cast<size_t>(i)]), 1e-12);
    sum += std::exp(log_probability(logits, i));
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_EQ(log_probability(std::vector{0.f, -kInf}, 1), -INFINITY);
  EXPECT_NEAR(log_probability(std::vector{1e30f, 0.f}, 0), 0, 1e-15);
  EXPECT_EQ(log_probability(std::vector{0.f, std::nanf("")}, 1), -INFINITY);
  EXPECT_EQ(log_probability(std::vector{0.f, std::nanf("")}, 0), 0);
  EXPECT_THROW(log_probability(logits, 1000), Error);
  EXPECT_THROW(log_probability(logits, -1), Error);
}

TEST(LogProbability, IsSharedByInfiniteLogits) {
  const std::vector<float> logits = {kInf, 3e38f, std::nanf(""), kInf, -kInf};
  EXPECT_DOUBLE_EQ(log_probability(logits, 0), std::log(0.5));
  EXPECT_DOUBLE_EQ(log_probability(logits, 3), std::log(0.5));
  for (int32_t token : {1, 2, 4}) EXPECT_EQ(log_probability(logits, token), -INFINITY) << token;
  using Top = std::vector<std::pair<int32_t, double>>;
  EXPECT_EQ(top_log_probabilities(logits, 5), (Top{{0, std::log(0.5)}, {3, std::log(0.5)}}));
  EXPECT_EQ(top_log_probabilities(std::vector{0.f, kInf, 1.f}, 3), (Top{{1, 0.}}));
}

// A logit may be so large that the log of the sum vanishes beside it.
TEST(TopLogProbabilities, KeepWhatLargeLogitsShare) {
  const std::vector<float> logits = {3e38f, 0.f, 3e38f};
  const auto top = top_log_probabilities(logits, 2);
  EXPECT_DOUBLE_EQ(top[0].second, std::log(0.5));
  EXPECT_DOUBLE_EQ(top[1].second, std::log(0.5));
}

TEST(TopLogProbabilities, AreTheMostProbableInOrder) {
  std::vector<float> logits = random_logits(3000, 6);
  logits[100] = logits[50] = 20.f;
  const auto top = top_log_probabilities(logits, 5);
  ASSERT_EQ(top.size(), 5u);
  EXPECT_EQ(top[0].first, 50);
  EXPECT_EQ(top[1].first, 100);
  for (size_t i = 0; i < top.size(); ++i) {
    EXPECT_NEAR(top[i].second, log_probability(logits, top[i].first), 1e-12);
    if (i > 0) {
      EXPECT_GE(top[i - 1].second, top[i].second);
    }
  }
  EXPECT_EQ(top_log_probabilities(logits, 0).size(), 0u);
  EXPECT_EQ(top_log_probabilities(std::vector{1.f, 2.f}, 9).size(), 2u);
  EXPECT_THROW(top_log_probabilities(logits, -1), Error);
}

}  // namespace
}  // namespace weft::test::sampling
