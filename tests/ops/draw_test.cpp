// Draws against the rule as it is written (tile/abi/draw.h): every token weighed, sorted and summed.
#include "ops/draw.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "tests/ops/scalar_math.h"

namespace weft::ops {
namespace {

constexpr float kInf = INFINITY;
__extension__ typedef unsigned __int128 Wide;

struct Token {
  int32_t id;
  float logit;
  uint64_t weight;
};

uint64_t sum_of(const std::vector<Token>& tokens) {
  uint64_t sum = 0;
  for (const Token& token : tokens) sum += token.weight;
  return sum;
}

// ceil(share * total / 2^32), of 128 bits.
uint64_t least_of_share(uint64_t total, uint64_t share) {
  const auto product = Wide{total} * share;
  return std::max<uint64_t>(1, static_cast<uint64_t>((product + 0xffffffffu) >> 32));
}

// Those that may be drawn, in order of ids.
std::vector<Token> kept_by(const std::vector<float>& row, const tile::DrawRule& rule) {
  float largest = -kInf;
  for (const float logit : row) largest = logit > largest ? logit : largest;
  std::vector<Token> tokens;
  for (size_t i = 0; i < row.size(); ++i) {
    const float exponent = tile::draw_exponent<ScalarMath>(row[i], largest, rule.scale);
    if (const int weight = tile::draw_weight<ScalarMath>(exponent); weight > 0)
      tokens.push_back({static_cast<int32_t>(i), row[i], static_cast<uint64_t>(weight)});
  }
  const uint64_t all = sum_of(tokens);
  std::ranges::stable_sort(tokens, std::greater(), &Token::logit);
  if (rule.top_k > 0 && tokens.size() > static_cast<size_t>(rule.top_k)) tokens.resize(static_cast<size_t>(rule.top_k));
  if (rule.has_share()) {
    const uint64_t wanted = least_of_share(rule.joint ? all : sum_of(tokens), rule.share);
    uint64_t sum = 0;
    size_t count = 0;
    while (count < tokens.size() && sum < wanted) sum += tokens[count++].weight;
    tokens.resize(count);
  }
  std::erase_if(tokens, [&](const Token& t) { return t.weight < static_cast<uint64_t>(rule.least_weight); });
  std::ranges::sort(tokens, {}, &Token::id);
  return tokens;
}

int32_t id_of(const std::vector<Token>& kept, uint64_t bits) {
  auto left = static_cast<uint64_t>((Wide{bits} * sum_of(kept)) >> 64);
  for (const Token& token : kept) {
    if (left < token.weight) return token.id;
    left -= token.weight;
  }
  return -2;
}

std::vector<tile::DrawRule> rules(size_t vocab) {
  const int most = static_cast<int>(vocab);
  std::vector<tile::DrawRule> all;
  for (const float temperature : {1.f, 0.2f, 30.f})
    for (const FilterOrder order : {FilterOrder::top_k_first, FilterOrder::joint})
      for (const int top_k : {0, 1, 7, most / 3, most, most + 5})
        for (const float top_p : {1.f, 0.9f, 0.3f, 1e-12f})
          for (const float min_p : {0.f, 0.02f, 1.f})
            if (order == FilterOrder::top_k_first || (top_k > 0 && top_p < 1.f))
              all.push_back(rule_of(
                  {.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p, .filter_order = order}));
  return all;
}

void expect_draws(const std::vector<float>& row, const std::string& name) {
  RowDraw drawer;
  uint64_t position = 0;
  for (const tile::DrawRule& rule : rules(row.size())) {
    const std::vector<Token> kept = kept_by(row, rule);
    for (const unsigned long long bits : {0ull, ~0ull, tile::random_bits(5, position), tile::random_bits(6, position)})
      ASSERT_EQ(drawer.draw(row, rule, bits), id_of(kept, bits))
          << name << ": scale " << rule.scale << ", top_k " << rule.top_k << ", share " << rule.share << ", least "
          << rule.least_weight << ", joint " << rule.joint;
    ++position;
  }
}

TEST(RowDraw, DrawsWhatTheRuleSaysOfRandomRows) {
  std::mt19937 random(20261128);
  for (const size_t vocab : {1u, 2u, 65u, 700u, 2500u}) {
    std::vector<float> row(vocab);
    for (const float spread : {0.01f, 2.f, 9.f}) {
      std::normal_distribution<float> normal(3.f, spread);
      for (float& logit : row) logit = normal(random);
      expect_draws(row, fmt::format("{} of spread {}", vocab, spread));
    }
    for (float& logit : row) logit = std::round(logit / 4);  // ties, all over the row
    expect_draws(row, fmt::format("{} with ties", vocab));
  }
}

TEST(RowDraw, DrawsWhatTheRuleSaysOfExtremes) {
  for (const size_t vocab : {5u, 1100u}) {
    std::vector<float> row(vocab, -kInf);
    row[3] = -2.f;
    expect_draws(row, "one");
    row[1] = std::nanf(""), row[4] = -2.f;
    expect_draws(row, "two and a NaN");
    row[0] = 3e38f, row[2] = -3e38f;
    expect_draws(row, "the largest numbers");
    row[2] = -0.f, row[0] = 0.f, row[4] = -0.f;
    expect_draws(row, "both zeros");
    row[2] = row[4] = kInf;
    expect_draws(row, "infinite");
    std::ranges::fill(row, 1.f);
    expect_draws(row, "equals");
    std::ranges::fill(row, kInf);
    expect_draws(row, "infinite equals");
  }
  for (const std::vector<float>& row :
       {std::vector<float>{}, {-kInf}, {std::nanf(""), -kInf}, std::vector<float>(2000, -kInf)})
    for (const tile::DrawRule& rule : {tile::DrawRule{}, rule_of({}), rule_of({.top_k = 3, .top_p = 0.5f})})
      EXPECT_EQ(RowDraw().draw(row, rule, 77), -1);
}

TEST(RowDraw, DrawsWhatTheRuleSaysOfAWholeVocabulary) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0.f, 2.f);
  std::vector<float> row(128256);
  for (float& logit : row) logit = normal(random);
  RowDraw drawer;
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.top_k = 50, .top_p = 0.9f}, SamplingParams{.top_p = 0.9f},
        SamplingParams{.top_p = 0.9999f}, SamplingParams{.top_k = 1000}, SamplingParams{.top_k = 20000, .top_p = 0.5f},
        SamplingParams{.min_p = 0.01f}, SamplingParams{.top_k = 300, .top_p = 0.1f, .filter_order = FilterOrder::joint},
        SamplingParams{.temperature = 0.1f, .top_p = 0.95f}}) {
    const tile::DrawRule rule = rule_of(params);
    const std::vector<Token> kept = kept_by(row, rule);
    for (uint64_t position = 0; position < 20; ++position) {
      const uint64_t bits = tile::random_bits(1, position);
      ASSERT_EQ(drawer.draw(row, rule, bits), id_of(kept, bits)) << params.top_k << " " << params.top_p;
    }
  }
}

// Each token as often as fp64 says, within five standard deviations.
TEST(RowDraw, DrawsAMillionTimesWithinTheBand) {
  constexpr int kDraws = 1000000;
  const std::vector<float> row{0.f, 2.f, -1.f, 2.5f, -30.f, 1.f, 2.f, 0.5f};
  RowDraw drawer;
  const auto expect_band = [&](const SamplingParams& params, const std::vector<size_t>& kept) {
    std::vector<double> probability(row.size());
    double sum = 0;
    for (const size_t id : kept)
      sum += probability[id] = std::exp(static_cast<double>(row[id]) / static_cast<double>(params.temperature));
    std::vector<int> counts(row.size());
    const tile::DrawRule rule = rule_of(params);
    for (int i = 0; i < kDraws; ++i)
      ++counts[static_cast<size_t>(drawer.draw(row, rule, tile::random_bits(11, static_cast<uint64_t>(i))))];
    for (size_t id = 0; id < row.size(); ++id) {
      const double p = probability[id] / sum, band = 5 * std::sqrt(kDraws * p * (1 - p));
      EXPECT_NEAR(counts[id], kDraws * p, band) << id << " at " << params.temperature;
    }
  };
  expect_band({}, {0, 1, 2, 3, 5, 6, 7});
  expect_band({.temperature = 2.f, .top_k = 4, .top_p = 0.95f}, {1, 3, 5, 6});
}

// The number is a weight's end itself: the token behind it is drawn.
TEST(RowDraw, GivesEachTokenAsManyNumbersAsItWeighs) {
  for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.top_k = 2}}) {
    const std::vector<float> row{1.f, 1.f};
    EXPECT_EQ(RowDraw().draw(row, rule_of(params), (uint64_t{1} << 63) - 1), 0) << params.top_k;
    EXPECT_EQ(RowDraw().draw(row, rule_of(params), uint64_t{1} << 63), 1) << params.top_k;
  }
}

TEST(RowDraw, ListsTheLargestInTheirOrder) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  RowDraw drawer;
  for (const size_t vocab : {1u, 50u, 3000u}) {
    std::vector<float> row(vocab);
    for (float& logit : row) logit = std::round(8 * normal(random)) / 8;
    row[vocab / 2] = -kInf, row[vocab / 3] = std::nanf("");
    std::vector<int32_t> order;
    for (size_t i = 0; i < vocab; ++i)
      if (row[i] > -kInf) order.push_back(static_cast<int32_t>(i));
    std::ranges::stable_sort(order, std::greater(), [&](int32_t id) { return row[static_cast<size_t>(id)]; });
    for (const size_t k : {0u, 1u, 20u, 400u, 5000u}) {
      const auto found = drawer.largest(row, static_cast<int>(k));
      ASSERT_TRUE(std::ranges::equal(found, std::span(order).first(std::min(k, order.size())))) << vocab << " " << k;
    }
  }
  EXPECT_TRUE(std::ranges::equal(drawer.largest(std::vector{1.f, kInf, 2.f, kInf}, 4), std::vector<int32_t>{1, 3}));
}

// The test vectors of the authors' library (Random123, kat_vectors).
TEST(Philox, HasTheNumbersOfItsAuthors) {
  using Words = std::array<unsigned, 4>;
  const auto block = [](tile::PhiloxBlock counter, unsigned key0, unsigned key1) {
    return std::to_array(tile::philox(counter, key0, key1).word);
  };
  EXPECT_EQ(block({{0, 0, 0, 0}}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(block({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(block({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(tile::random_bits(0, 0), 0xe169c58d6627e8d5u);
  const tile::PhiloxBlock placed = tile::philox({{0x33333333, 0x44444444, 0, 0}}, 0x11111111, 0x22222222);
  EXPECT_EQ(tile::random_bits(0x2222222211111111, 0x4444444433333333),
            static_cast<uint64_t>(placed.word[1]) << 32 | placed.word[0]);
}

TEST(DrawArithmetic, IsExactInHalves) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; ++i) {
    const uint64_t total = random() >> (14 + i % 50), bits = random();
    const uint64_t share = std::min<uint64_t>(random() >> (31 + i % 30), tile::kWholeShare);
    EXPECT_EQ(tile::scaled_below(bits, total), static_cast<uint64_t>((Wide{bits} * total) >> 64));
    EXPECT_EQ(tile::weight_of_share(total, share), least_of_share(total, share)) << total << " " << share;
  }
}

TEST(DrawWeights, AreTheExponentialsRounded) {
  for (float x = 0.f; x > -20.75f; x = x * 1.00037f - 1e-5f) {
    const double exact = std::exp(static_cast<double>(x)) * tile::kLargestWeight;
    const int weight = tile::draw_weight<ScalarMath>(x);
    ASSERT_NEAR(weight, exact, 0.51 + exact * 0x1p-23) << x;
    ASSERT_GT(weight, 0);
  }
  EXPECT_EQ(tile::draw_weight<ScalarMath>(0.f), tile::kLargestWeight);
  EXPECT_EQ(tile::draw_weight<ScalarMath>(-20.75f), 1);
  for (const float none : {std::nextafter(-20.75f, -30.f), -100.f, -kInf, std::nanf("")})
    EXPECT_EQ(tile::draw_weight<ScalarMath>(none), 0) << none;
}

}  // namespace
}  // namespace weft::ops
