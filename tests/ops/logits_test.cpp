#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "weft/error.h"
#include "weft/ops.h"

namespace weft {
namespace {

constexpr float kInf = INFINITY;

template <class Call>
ErrorCode code_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::invalid_argument;
}

TEST(TokenMask, LeavesOnlyTokensWhoseBitIsSet) {
  std::vector<float> logits(70);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i);
  const std::vector<uint32_t> mask{0x80000001u, 0x2u, 0x20u};  // 0, 31, 33, 69
  apply_token_mask(logits, mask);
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool allowed = i == 0 || i == 31 || i == 33 || i == 69;
    EXPECT_EQ(logits[i], allowed ? static_cast<float>(i) : -kInf) << i;
  }
  Philox random{1};
  for (int i = 0; i < 200; ++i) {
    const int32_t id = sample(logits, {.temperature = 100.f}, random);
    EXPECT_TRUE(id == 0 || id == 31 || id == 33 || id == 69) << id;
  }
}

TEST(TokenMask, TakesAnInfiniteLogitForAllowed) {
  std::vector<float> logits{1.f, kInf, std::nanf("")};
  apply_token_mask(logits, std::vector<uint32_t>{2});
  EXPECT_EQ(logits, (std::vector<float>{-kInf, kInf, -kInf}));
  EXPECT_EQ(code_of([&] { apply_token_mask(logits, std::vector<uint32_t>{5}); }), ErrorCode::invalid_argument);
}

TEST(TokenMask, RefusesAMaskThatRulesOutEverything) {
  std::vector<float> logits{1.f, 2.f, -kInf};
  const std::vector<float> before = logits;
  EXPECT_EQ(code_of([&] { apply_token_mask(logits, std::vector<uint32_t>{0}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { apply_token_mask(logits, std::vector<uint32_t>{4}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { apply_token_mask(logits, std::vector<uint32_t>{1, 1}); }), ErrorCode::invalid_shape);
  EXPECT_EQ(code_of([&] { apply_token_mask(logits, {}); }), ErrorCode::invalid_shape);
  EXPECT_EQ(logits, before);
}

TEST(LogitBias, IsAddedAndMayRuleOut) {
  std::vector<float> logits{1.f, 2.f, 3.f};
  apply_logit_bias(logits, std::vector<std::pair<int32_t, float>>{{0, 5.f}, {2, -kInf}, {0, 1.f}});
  EXPECT_EQ(logits, (std::vector<float>{7.f, 2.f, -kInf}));
  const std::vector<float> before = logits;
  using Bias = std::vector<std::pair<int32_t, float>>;
  EXPECT_EQ(code_of([&] { apply_logit_bias(logits, Bias{{0, 1.f}, {3, 1.f}}); }), ErrorCode::invalid_token);
  EXPECT_EQ(code_of([&] { apply_logit_bias(logits, Bias{{0, 1.f}, {-1, 1.f}}); }), ErrorCode::invalid_token);
  EXPECT_EQ(code_of([&] {
              apply_logit_bias(logits, Bias{{0, 1.f}, {1, std::nanf("")}});
            }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { apply_logit_bias(logits, Bias{{1, kInf}}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(logits, before);
}

TEST(LogitBias, KeepsFiniteLogitsFinite) {
  using Bias = std::vector<std::pair<int32_t, float>>;
  constexpr float kMax = std::numeric_limits<float>::max();
  std::vector<float> logits{3e38f, 2.f, -3e38f, kInf, -kInf};
  apply_logit_bias(logits, Bias{{0, 3e38f}, {2, -3e38f}, {3, -3e38f}, {4, 3e38f}});
  EXPECT_EQ(logits, (std::vector<float>{kMax, 2.f, -kMax, kInf, -kInf}));
  Philox random{1};
  logits[3] = 5.f;
  EXPECT_EQ(sample(logits, {.temperature = 0.f}, random), 0);
  EXPECT_EQ(sample(std::vector{-kInf, logits[2]}, {}, random), 1);
}

TEST(LogitBias, RulesOutWhateverTheLogitIs) {
  std::vector<float> logits{1.f, kInf, std::nanf("")};
  apply_logit_bias(logits, std::vector<std::pair<int32_t, float>>{{0, -kInf}, {1, -kInf}, {2, -kInf}});
  EXPECT_EQ(logits, (std::vector<float>{-kInf, -kInf, -kInf}));
}

TEST(Penalties, KeepFiniteLogitsFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const std::vector<float> logits{3e38f, -3e38f, 1e30f, kInf, -kInf};
  const std::vector<int32_t> all{0, 1, 2, 3, 4}, twice{0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
  std::vector<float> repeated = logits;
  apply_penalties(repeated, {.repetition = 1e-20f}, all, {});
  EXPECT_EQ(repeated, (std::vector<float>{kMax, -3e38f * 1e-20f, kMax, kInf, -kInf}));
  repeated = logits;
  apply_penalties(repeated, {.repetition = 1e20f}, all, {});
  EXPECT_EQ(repeated, (std::vector<float>{3e38f / 1e20f, -kMax, 1e30f / 1e20f, kInf, -kInf}));
  std::vector<float> counted = logits;
  apply_penalties(counted, {.frequency = 3e38f}, {}, twice);
  EXPECT_EQ(counted, (std::vector<float>{-3e38f, -kMax, -kMax, kInf, -kInf}));
  // The penalties of one token may cancel, however large.
  counted = {1.f};
  apply_penalties(counted, {.presence = -3e38f, .frequency = 1.5e38f}, {}, std::vector<int32_t>{0, 0});
  EXPECT_EQ(counted, std::vector<float>{1.f});
}

TEST(Penalties, ActOnPromptAndOutputAsTheirDefinitionsSay) {
  const std::vector<float> logits{4.f, -4.f, 1.f, 2.f, 0.f};
  const std::vector<int32_t> prompt{0, 1, 0}, output{3, 3, 4, 1};
  std::vector<float> repeated = logits;
  apply_penalties(repeated, {.repetition = 2.f}, prompt, output);
  EXPECT_EQ(repeated, (std::vector<float>{2.f, -8.f, 1.f, 1.f, 0.f}));
  std::vector<float> counted = logits;
  apply_penalties(counted, {.presence = 0.5f, .frequency = 0.25f}, prompt, output);
  EXPECT_EQ(counted, (std::vector<float>{4.f, -4.75f, 1.f, 1.f, -0.75f}));
  std::vector<float> both = logits;
  apply_penalties(both, {.repetition = 2.f, .presence = 0.5f, .frequency = 0.25f}, prompt, output);
  EXPECT_EQ(both, (std::vector<float>{2.f, -8.75f, 1.f, 0.f, -0.75f}));
  std::vector<float> off = logits;
  apply_penalties(off, {}, prompt, output);
  EXPECT_EQ(off, logits);
}

TEST(Penalties, RefuseBadNumbersBeforeTheyChangeAnything) {
  std::vector<float> logits{1.f, 2.f};
  const std::vector<float> before = logits;
  const std::vector<int32_t> tokens{0}, unknown{0, 2};
  for (const Penalties& bad : {Penalties{.repetition = 0.f}, Penalties{.repetition = -1.f}, Penalties{.presence = kInf},
                               Penalties{.frequency = std::nanf("")}})
    EXPECT_EQ(code_of([&] { apply_penalties(logits, bad, tokens, tokens); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { apply_penalties(logits, {.presence = 1.f}, {}, unknown); }), ErrorCode::invalid_token);
  EXPECT_EQ(code_of([&] { apply_penalties(logits, {.presence = 1.f}, unknown, tokens); }), ErrorCode::invalid_token);
  EXPECT_EQ(logits, before);
}

TEST(SampleRows, GivesEachRowTheTokenItGetsAlone) {
  constexpr int kRows = 7, kVocab = 3000, kStride = kVocab + 5;
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal(0.f, 3.f);
  std::vector<float> logits(kRows * kStride, std::nanf(""));
  for (int row = 0; row < kRows; ++row)
    for (int i = 0; i < kVocab; ++i) logits[static_cast<size_t>(row * kStride + i)] = normal(random);
  std::vector<SamplingParams> params;
  std::vector<Philox> together, alone;
  for (int row = 0; row < kRows; ++row) {
    params.push_back({.temperature = 0.5f * static_cast<float>(row), .top_k = row * 10, .top_p = 0.9f});
    together.push_back({static_cast<uint64_t>(row)});
    alone.push_back(together.back());
  }
  const std::vector<int64_t> shape{kRows, kVocab}, strides{kStride, 1};
  WorkerTeam team(3);
  const std::vector<int32_t> ids =
      sample_rows(TensorView(logits.data(), DType::fp32, shape, strides), params, together, Stream::cpu(team));
  for (size_t row = 0; row < kRows; ++row) {
    const std::span<const float> own(logits.data() + row * kStride, kVocab);
    EXPECT_EQ(ids[row], sample(own, params[row], alone[row])) << row;
    EXPECT_EQ(together[row], alone[row]) << row;
  }
}

TEST(SampleRows, MovesNoGeneratorWhenARowCannotBeDrawn) {
  std::vector<float> logits{1.f, 2.f, std::nanf(""), -kInf};
  std::vector<Philox> generators(2), before(2);
  const std::vector<SamplingParams> params(2);
  const TensorView rows(logits.data(), DType::fp32, {2, 2});
  EXPECT_EQ(code_of([&] { sample_rows(rows, params, generators); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { sample_rows(rows, std::span(params).first(1), generators); }), ErrorCode::invalid_shape);
  EXPECT_EQ(generators, before);
  EXPECT_TRUE(sample_rows(TensorView(logits.data(), DType::fp32, {0, 2}), {}, {}).empty());
}

// Of 0.5, 0.3, 0.2: top_k = 2 leaves 0.5 and 0.3. A share of 0.6 is then reached by 0.5 of 0.8, and not by 0.5 of 1.
TEST(FilterOrder, JointTakesTopPOfAllTokens) {
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  Philox random{5};
  int second[2] = {};
  for (int i = 0; i < 500; ++i) {
    second[0] += sample(logits, {.top_k = 2, .top_p = 0.6f}, random) == 1;
    second[1] += sample(logits, {.top_k = 2, .top_p = 0.6f, .filter_order = FilterOrder::joint}, random) == 1;
  }
  EXPECT_EQ(second[0], 0);
  EXPECT_GT(second[1], 100);
}

}  // namespace
}  // namespace weft
