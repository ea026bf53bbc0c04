#include "serve/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "weft/error.h"

namespace weft::serve {
namespace {

constexpr int kVocab = 700;

std::vector<float> random_row(int seed, float spread = 6.f) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::normal_distribution<float> normal(0.f, spread / 2);
  std::vector<float> row(kVocab);
  for (float& logit : row) logit = normal(random);
  return row;
}

int32_t draw(Sampler& sampler, const std::vector<float>& row, TokenDraw how, Philox& random) {
  how.random = random;
  ops::move_on(how.params, random);
  return sampler.draw(row, how);
}

// The text book's filters, in double: what is kept, with its probability.
std::map<int32_t, double> reference(const std::vector<float>& row, const SamplingParams& params) {
  std::vector<std::pair<double, int32_t>> order;
  double largest = -INFINITY, all = 0;
  for (const float logit : row) largest = std::max(largest, static_cast<double>(logit));
  for (int32_t id = 0; id < kVocab; ++id) {
    const double weight = std::exp((static_cast<double>(row[static_cast<size_t>(id)]) - largest) /
                                   static_cast<double>(params.temperature));
    order.emplace_back(-weight, id);
    all += weight;
  }
  std::sort(order.begin(), order.end());
  if (params.top_k > 0) order.resize(static_cast<size_t>(std::min(params.top_k, kVocab)));
  double kept = 0;
  for (const auto& [weight, id] : order) kept -= weight;
  const double share = static_cast<double>(params.top_p) * (params.filter_order == FilterOrder::joint ? all : kept);
  double sum = 0;
  std::map<int32_t, double> result;
  for (const auto& [weight, id] : order) {
    if (params.top_p < 1.f && sum >= share) break;
    sum -= weight;
    if (-weight >= static_cast<double>(params.min_p)) result[id] = -weight;
  }
  double mass = 0;
  for (const auto& [id, weight] : result) mass += weight;
  for (auto& [id, weight] : result) weight /= mass;
  return result;
}

class SamplerFilters : public testing::TestWithParam<SamplingParams> {};

TEST_P(SamplerFilters, DrawsEachTokenAsOftenAsItsProbabilitySays) {
  std::vector<float> row = random_row(3);
  const auto expected = reference(row, GetParam());
  Sampler sampler;
  Philox generator = generator_of(5, 0);
  constexpr int kDraws = 5000;
  std::map<int32_t, int> counts;
  for (int i = 0; i < kDraws; ++i) ++counts[draw(sampler, row, {.params = GetParam()}, generator)];
  double chi = 0, rest_expected = 0, rest_seen = 0;
  int bins = 1;
  for (const auto& [id, count] : counts) ASSERT_TRUE(expected.contains(id)) << id << " was filtered";
  for (const auto& [id, probability] : expected) {
    const double mean = probability * kDraws, seen = counts.contains(id) ? counts[id] : 0;
    if (mean < 10) {
      rest_expected += mean, rest_seen += seen;
      continue;
    }
    chi += (seen - mean) * (seen - mean) / mean;
    ++bins;
  }
  if (rest_expected > 0) chi += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
  EXPECT_LT(chi, bins + 6 * std::sqrt(2. * bins));  // six standard deviations, of a fixed seed
}

INSTANTIATE_TEST_SUITE_P(Grid, SamplerFilters,
                         testing::Values(SamplingParams{}, SamplingParams{.temperature = 0.3f},
                                         SamplingParams{.top_k = 7}, SamplingParams{.top_p = 0.9f},
                                         SamplingParams{.top_p = 0.9999f}, SamplingParams{.min_p = 0.05f},
                                         SamplingParams{.top_k = 50, .top_p = 0.8f, .min_p = 0.02f},
                                         SamplingParams{.top_k = 5, .top_p = 0.5f, .filter_order = FilterOrder::joint},
                                         SamplingParams{.temperature = 5.f, .top_p = 0.99f},
                                         SamplingParams{.top_k = 5000}));

TEST(Sampler, TakesTheFirstOfTheLargestAtTemperatureZero) {
  std::vector<float> row(kVocab, 1.f);
  row[17] = row[600] = 3.f;
  row[3] = NAN;
  Sampler sampler;
  Philox generator;
  EXPECT_EQ(draw(sampler, row, {.params = {.temperature = 0.f}}, generator), 17);
}

TEST(Sampler, KeepsTheLeastIdsOfEqualsAndAtLeastOneToken) {
  std::vector<float> row(kVocab, 2.f);
  Sampler sampler;
  Philox generator = generator_of(1, 0);
  std::set<int32_t> drawn, one;
  for (int i = 0; i < 5000; ++i) {
    drawn.insert(draw(sampler, row, {.params = {.top_p = 0.5f}}, generator));
    one.insert(draw(sampler, row, {.params = {.top_p = 1e-6f}}, generator));
  }
  EXPECT_EQ(drawn.size(), 350u);
  EXPECT_EQ(*drawn.rbegin(), 349);
  EXPECT_EQ(one, std::set<int32_t>{0});
}

TEST(Sampler, AppliesBiasPenaltiesAndWhatIsRuledOut) {
  std::vector<float> row(kVocab, 0.f);
  row[10] = 5.f;
  row[11] = 4.9f;
  row[12] = 4.f;
  Sampler sampler;
  Philox generator;
  const SamplingParams greedy{.temperature = 0.f};
  const std::vector<int32_t> said{10}, twice{11, 11};
  const std::vector<std::pair<int32_t, float>> bias{{500, 50.f}};
  EXPECT_EQ(draw(sampler, row, {.params = greedy}, generator), 10);
  EXPECT_EQ(draw(sampler, row, {.params = greedy, .penalties = {.presence = 0.2f}, .output = said}, generator), 11);
  EXPECT_EQ(draw(sampler, row, {.params = greedy, .penalties = {.repetition = 1.1f}, .prompt = said}, generator), 11);
  EXPECT_EQ(draw(sampler, row, {.params = greedy, .penalties = {.frequency = 0.6f}, .output = twice, .ruled_out = said},
                 generator),
            12);
  EXPECT_EQ(draw(sampler, row, {.params = greedy, .bias = bias}, generator), 500);
}

TEST(Sampler, DrawsAnInfiniteLogitAndRefusesARowWithoutAPossibleToken) {
  std::vector<float> row(kVocab, -INFINITY);
  Sampler sampler;
  Philox generator;
  EXPECT_THROW(draw(sampler, row, {}, generator), Error);
  row[3] = NAN;
  EXPECT_THROW(draw(sampler, row, {.params = {.temperature = 0.f}}, generator), Error);
  row[4] = 1.f, row[5] = INFINITY;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(draw(sampler, row, {.params = {.temperature = 2.f}}, generator), 5);
}

TEST(Sampler, GivesLogProbabilitiesOfTheRowAsItIs) {
  const std::vector<float> row = random_row(9);
  Sampler sampler;
  const TokenLogprob found = sampler.log_probability(row, 42, 5);
  EXPECT_NEAR(found.logprob, log_probability(row, 42), 1e-5);
  const auto top = top_log_probabilities(row, 5);
  ASSERT_EQ(found.top.size(), top.size());
  for (size_t i = 0; i < top.size(); ++i) {
    EXPECT_EQ(found.top[i].first, top[i].first);
    EXPECT_NEAR(found.top[i].second, top[i].second, 1e-5);
  }
}

TEST(Sampler, GivesEveryChoiceNumbersOfItsOwn) {
  std::set<std::pair<uint64_t, uint64_t>> taken;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32})
    for (int choice = 0; choice < 64; ++choice) {
      const Philox first = generator_of(seed, choice);
      for (uint64_t i : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) taken.emplace(first.seed, first.position + i);
    }
  EXPECT_EQ(taken.size(), 3u * 64u * 3u);
}

std::set<int32_t> drawn_from(const std::vector<float>& row, const SamplingParams& params) {
  Sampler sampler;
  Philox generator = generator_of(3, 0);
  std::set<int32_t> ids;
  for (int i = 0; i < 400; ++i) ids.insert(draw(sampler, row, {.params = params}, generator));
  return ids;
}

TEST(Sampler, FiltersKeepWhatIsExactlyAtTheirLimit) {
  const std::vector<float> equal(8, 1.f);
  for (const FilterOrder order : {FilterOrder{}, FilterOrder::joint})
    EXPECT_EQ(drawn_from(equal, {.temperature = 1.f, .top_k = 8, .top_p = 0.5f, .filter_order = order}),
              (std::set<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(drawn_from({1.f, 0.f, 1.f, 0.f}, {.temperature = 1.f, .min_p = 1.f}), (std::set<int32_t>{0, 2}));
}

TEST(Sampler, ListsNoTokenThatIsImpossibleAmongTheMostProbable) {
  std::vector<float> row(100, -INFINITY);
  for (const size_t id : {7u, 50u, 99u}) row[id] = static_cast<float>(id) / 20;
  const TokenLogprob got = Sampler().log_probability(row, 50, 5);
  ASSERT_EQ(got.top.size(), 3u);
  EXPECT_EQ(got.top[0].first, 99);
  EXPECT_EQ(got.top[2].first, 7);
}

TEST(Sampler, PresenceCountsInTheAnswerAloneAndRepetitionInThePromptToo) {
  const std::vector<float> row{0.f, 10.f, 7.f, 0.f};
  const std::vector<int32_t> prompt{1}, output{2};
  const auto drawn = [&](const Penalties& penalties, std::span<const int32_t> answer) {
    return Sampler().draw(row,
                          {.params = {.temperature = 0.f}, .penalties = penalties, .prompt = prompt, .output = answer});
  };
  EXPECT_EQ(drawn({.repetition = 1.25f}, {}), 1);                   // 8 and 7
  EXPECT_EQ(drawn({.repetition = 1.25f, .presence = 5.f}, {}), 1);  // not 3 and 7
  EXPECT_EQ(drawn({.repetition = 2.f}, {}), 2);                     // 5 and 7
  EXPECT_EQ(drawn({.repetition = 2.f, .presence = 5.f}, output), 1);
}

}  // namespace
}  // namespace weft::serve
