// Draws against the rule as it is written (tile/abi/draw.h): every token weighed, sorted and summed.
#include "ops/draw.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
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
  const float scale = rule.of_probabilities ? tile::scale_of_shares(largest) : rule.scale;
  const auto weight_of = [&](float x) {
    return rule.of_probabilities ? tile::share_weight<ScalarMath>(tile::draw_share<ScalarMath>(x, largest, scale))
                                 : tile::draw_weight<ScalarMath>(tile::draw_exponent<ScalarMath>(x, largest, scale));
  };
  std::vector<Token> tokens;
  for (size_t i = 0; i < row.size(); ++i)
    if (const int weight = weight_of(row[i]); weight > 0)
      tokens.push_back({static_cast<int32_t>(i), row[i], static_cast<uint64_t>(weight)});
  const uint64_t all = rule.of_probabilities ? tile::weight_of_one(scale) : sum_of(tokens);
  std::ranges::stable_sort(tokens, std::greater(), &Token::logit);
  const auto keep = [&](size_t count) {
    while (rule.keeps_ties && count < tokens.size() && tokens[count].logit == tokens[count - 1].logit) ++count;
    tokens.resize(std::min(count, tokens.size()));
  };
  if (rule.top_k > 0) keep(static_cast<size_t>(rule.top_k));
  if (rule.has_share()) {
    const uint64_t wanted = least_of_share(rule.joint ? all : sum_of(tokens), rule.share);
    uint64_t sum = 0;
    size_t count = 0;
    while (count < tokens.size() && sum < wanted) sum += tokens[count++].weight;
    keep(count);
  }
  std::erase_if(tokens, [&](const Token& t) {
    return t.weight < static_cast<uint64_t>(rule.least_weight) ||
           (rule.of_probabilities && t.logit < rule.least_share * largest);
  });
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

std::vector<tile::DrawRule> rules_of_probabilities(size_t vocab) {
  const int columns = static_cast<int>(vocab);
  std::vector<tile::DrawRule> all;
  for (const bool joint : {false, true})
    for (const int top_k : {0, 1, 7, columns / 3, columns})
      for (const float top_p : {1.f, 0.9f, 0.3f, 0.f})
        for (const float min_p : {0.f, 0.02f, 0.5f, 2.f})
          all.push_back(tile::rule_of_probabilities(top_k, top_p, min_p, joint, columns));
  return all;
}

void expect_draws(const std::vector<float>& row, const std::string& name, bool are_probabilities = false) {
  RowDraw drawer;
  uint64_t position = 0;
  for (const tile::DrawRule& rule : are_probabilities ? rules_of_probabilities(row.size()) : rules(row.size())) {
    const std::vector<Token> kept = kept_by(row, rule);
    for (const unsigned long long bits : {0ull, ~0ull, tile::random_bits(5, position), tile::random_bits(6, position)})
      ASSERT_EQ(drawer.draw(row, rule, bits), id_of(kept, bits))
          << name << ": scale " << rule.scale << ", top_k " << rule.top_k << ", share " << rule.share << ", least "
          << rule.least_weight << ", least share " << rule.least_share << ", joint " << rule.joint;
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

std::vector<float> probabilities(size_t vocab, float spread, std::mt19937& random) {
  std::normal_distribution<float> normal(0.f, spread);
  std::vector<float> row(vocab);
  for (float& p : row) p = std::exp(normal(random));
  const float sum = std::accumulate(row.begin(), row.end(), 0.f);
  for (float& p : row) p /= sum;
  return row;
}

TEST(RowDraw, DrawsWhatTheRuleSaysOfProbabilities) {
  std::mt19937 random(7);
  for (const size_t vocab : {1u, 2u, 65u, 1100u, 2500u}) {
    for (const float spread : {0.01f, 2.f, 9.f}) {
      std::vector<float> row = probabilities(vocab, spread, random);
      expect_draws(row, fmt::format("{} of spread {}", vocab, spread), true);
      for (float& p : row) p *= 3.f;
      expect_draws(row, fmt::format("{} of spread {} that sum to 3", vocab, spread), true);
    }
    std::vector<float> ties(vocab);
    for (size_t i = 0; i < vocab; ++i) ties[i] = static_cast<float>(random() % 4) / static_cast<float>(vocab);
    ties[0] = 0.001f;
    expect_draws(ties, fmt::format("{} with ties", vocab), true);
    std::ranges::fill(ties, 1e-40f);
    expect_draws(ties, fmt::format("{} that are subnormal", vocab), true);
  }
}

TEST(RowDraw, DrawsNothingOfRowsThatAreNoProbabilities) {
  for (const size_t vocab : {5u, 1500u})
    for (const auto& [first, second] :
         {std::pair(0.f, 0.f), {-0.f, -1.f}, {0.5f, std::nanf("")}, {0.5f, -std::nanf("")}, {0.5f, kInf}}) {
      std::vector<float> row(vocab, 0.f);
      row[1] = first, row[4] = second;
      for (const tile::DrawRule& rule : rules_of_probabilities(vocab)) EXPECT_EQ(RowDraw().draw(row, rule, 77), -1);
    }
}

// Any number of draws of a row, in any order, by one worker or several.
TEST(ProbabilityDraws, AreOfTheRowsThatAreNamed) {
  constexpr int64_t kRows = 4, kVocab = 3000, kStride = 3010, kDraws = 300;
  std::mt19937 random(9);
  std::vector<float> probs;
  for (int row = 0; row < kRows; ++row) {
    const std::vector<float> made = probabilities(kVocab, static_cast<float>(row), random);
    probs.insert(probs.end(), made.begin(), made.end());
    probs.resize(static_cast<size_t>((row + 1) * kStride), NAN);
  }
  probs[2 * kStride + 5] = NAN;
  const std::array<int64_t, 2> shape{kRows, kVocab}, strides{kStride, 1};
  std::vector<int32_t> top_k{0, 40, 9, -3}, rows(kDraws), ids(kDraws), again(kDraws);
  std::vector<float> top_p{0.5f, 2.f, 0.1f, 0.7f}, min_p{0.f, 0.1f, 0.f, 0.01f};
  std::vector<int64_t> bits(kDraws);
  for (size_t i = 0; i < kDraws; ++i) {
    rows[i] = static_cast<int32_t>(random() % 6) - 1;
    bits[i] = static_cast<int64_t>(static_cast<uint64_t>(random()) << 32 | random());
  }
  ProbabilityDraws draws{.probs = {probs.data(), DType::fp32, shape, strides},
                         .top_k = {top_k.data(), DType::int32, {kRows}},
                         .top_p = {top_p.data(), DType::fp32, {kRows}},
                         .min_p = {min_p.data(), DType::fp32, {kRows}},
                         .rows = {rows.data(), DType::int32, {kDraws}},
                         .bits = {bits.data(), DType::int64, {kDraws}},
                         .ids = {ids.data(), DType::int32, {kDraws}}};
  const auto of_row = [&](int32_t row, int64_t of, bool joint) {
    const std::vector<float> one(probs.begin() + row * kStride, probs.begin() + row * kStride + kVocab);
    const auto at = static_cast<size_t>(row);
    return RowDraw().draw(one, tile::rule_of_probabilities(top_k[at], top_p[at], min_p[at], joint, kVocab),
                          static_cast<uint64_t>(of));
  };
  WorkerTeam one(1), three(3);
  for (const FilterOrder order : {FilterOrder::top_k_first, FilterOrder::joint}) {
    draws.filter_order = order;
    sample_probabilities(draws, Stream::cpu(one));
    for (size_t i = 0; i < kDraws; ++i) {
      const bool is_there = rows[i] >= 0 && rows[i] < kRows && rows[i] != 2;
      EXPECT_EQ(ids[i], is_there ? of_row(rows[i], bits[i], order == FilterOrder::joint) : -1) << i;
    }
    again.swap(ids);
    draws.ids = {ids.data(), DType::int32, {kDraws}};
    sample_probabilities(draws, Stream::cpu(three));
    EXPECT_EQ(ids, again);
  }
  // Without rows a draw of each; without filters all tokens.
  ProbabilityDraws plain{
      .probs = draws.probs, .bits = {bits.data(), DType::int64, {kRows}}, .ids = {ids.data(), DType::int32, {kRows}}};
  sample_probabilities(plain);
  EXPECT_EQ(ids[2], -1);
  for (const size_t row : {0u, 1u, 3u}) {
    const std::vector<float> numbers(probs.begin() + static_cast<int64_t>(row) * kStride,
                                     probs.begin() + static_cast<int64_t>(row) * kStride + kVocab);
    EXPECT_EQ(ids[row], RowDraw().draw(numbers, tile::rule_of_probabilities(0, 1.f, 0.f, false, kVocab),
                                       static_cast<uint64_t>(bits[row])));
  }
}

TEST(ProbabilityDraws, RefuseArraysThatDoNotFit) {
  std::vector<float> memory(12);
  std::vector<int64_t> bits(4);
  std::vector<int32_t> ids(4);
  const ProbabilityDraws good{.probs = {memory.data(), DType::fp32, {2, 3}},
                              .bits = {bits.data(), DType::int64, {2}},
                              .ids = {ids.data(), DType::int32, {2}}};
  const auto refused = [](const ProbabilityDraws& draws, ErrorCode code, const char* named) {
    try {
      sample_probabilities(draws);
      ADD_FAILURE() << "accepted: " << named;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
    }
  };
  const auto with = [&](auto member, const TensorView& view) {
    ProbabilityDraws draws = good;
    draws.*member = view;
    return draws;
  };
  using P = ProbabilityDraws;
  refused(with(&P::probs, {ids.data(), DType::int32, {2, 2}}), ErrorCode::invalid_dtype, "probs");
  refused(with(&P::probs, {memory.data(), DType::fp32, {2}}), ErrorCode::invalid_shape, "probs");
  refused(with(&P::probs, {memory.data(), DType::fp32, {2, 0}}), ErrorCode::invalid_shape, "no token to draw");
  refused(with(&P::bits, {}), ErrorCode::invalid_dtype, "bits");
  refused(with(&P::bits, {bits.data(), DType::int64, {3}}), ErrorCode::invalid_shape, "bits");
  refused(with(&P::ids, {ids.data(), DType::fp32, {2}}), ErrorCode::invalid_dtype, "ids");
  refused(with(&P::rows, {ids.data(), DType::int32, {3}}), ErrorCode::invalid_shape, "bits");
  refused(with(&P::top_k, {memory.data(), DType::fp32, {2}}), ErrorCode::invalid_dtype, "top_k");
  refused(with(&P::top_p, {memory.data(), DType::fp32, {1}}), ErrorCode::invalid_shape, "top_p");
  refused(with(&P::min_p, {memory.data(), DType::fp32, {2, 1}}), ErrorCode::invalid_shape, "min_p");
  ProbabilityDraws order = good;
  order.filter_order = static_cast<FilterOrder>(7);
  refused(order, ErrorCode::invalid_argument, "filter_order = 7");
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
