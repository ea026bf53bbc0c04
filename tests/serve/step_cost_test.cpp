#include "serve/step_cost.h"

#include <gtest/gtest.h>

#include <random>

namespace weft::serve {
namespace {

double truth(const StepCost::Work& work) { return 0.004 + 0.0007 * static_cast<double>(work.rows) + 2e-7 * work.keys; }

TEST(StepCost, LearnsWhatStepsCostAndHowManyRowsFit) {
  StepCost cost;
  std::mt19937 random(7);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  for (int i = 0; i < 300; ++i) {
    StepCost::Work work;
    work.add(1 + static_cast<int64_t>(random() % 400), static_cast<int64_t>(random() % 4000));
    cost.learn(work, truth(work) * noise(random));
  }
  StepCost::Work decode;
  for (int i = 0; i < 8; ++i) decode.add(1, 1000);
  EXPECT_NEAR(cost.seconds(decode) / truth(decode), 1, 0.2);
  const int64_t rows = cost.rows_that_fit(decode, 500, 0.12, 512);
  StepCost::Work with = decode;
  with.add(rows, 500);
  EXPECT_LT(truth(with), 0.12);
  EXPECT_GT(truth(with), 0.09);
  EXPECT_EQ(cost.rows_that_fit(decode, 500, 1e-4, 512), 0);
  EXPECT_EQ(cost.rows_that_fit(decode, 500, 100, 512), 512);
}

// What a client notices is the slowest gaps, not their mean.
TEST(StepCost, KeepsNearlyAllStepsWithinTheTargetWhenTheirTimesAreNoisy) {
  constexpr double kTarget = 0.06;
  StepCost cost;
  std::mt19937 random(11);
  std::lognormal_distribution<double> noise(0., 0.12);
  int late = 0;
  double rows_in_all = 0;
  for (int i = 0; i < 4000; ++i) {
    StepCost::Work work;
    for (int decodes = 0; decodes < 8; ++decodes) work.add(1, 400);
    const int64_t before = 64 * (i % 64), rows = cost.rows_that_fit(work, before, kTarget, 512);
    work.add(rows, before);
    const double seconds = truth(work) * noise(random);
    cost.learn(work, seconds);
    if (i < 1000) continue;
    late += seconds > kTarget;
    rows_in_all += static_cast<double>(rows);
  }
  EXPECT_LT(late, 3000 * 0.05);
  EXPECT_GT(late, 3000 * 0.01) << "more rows would have fitted";
  EXPECT_GT(rows_in_all / 3000, 30);
}

// How far steps go beyond is asked of those that mix: prompts alone keep nobody waiting.
TEST(StepCost, PromptsThatRunAloneLeaveNoMarginBesideAnswers) {
  StepCost noisy;
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    StepCost::Work work;
    work.add(1 + static_cast<int64_t>(random() % 400), 0);
    noisy.learn(work, truth(work) * (i % 2 == 0 ? 0.6 : 1.4));
  }
  StepCost::Work decode;
  for (int i = 0; i < 8; ++i) decode.add(1, 100);
  const int64_t rows = noisy.rows_that_fit(decode, 0, 0.1, 512);
  StepCost::Work with = decode;
  with.add(rows, 0);
  EXPECT_NEAR(noisy.seconds(with), 0.1 / 1.1, 0.002);  // as much as is left before the first step that mixes
}

TEST(StepCost, LearnsAfterADayOfOneKindOfStep) {
  StepCost cost;
  StepCost::Work decode;
  for (int i = 0; i < 8; ++i) decode.add(1, 1000);
  for (int i = 0; i < 200'000; ++i) cost.learn(decode, truth(decode));
  for (int i = 1; i <= 100; ++i) {
    StepCost::Work work;
    work.add(4 * i, 10 * i);
    cost.learn(work, truth(work));
  }
  StepCost::Work prompt;
  prompt.add(300, 500);
  EXPECT_NEAR(cost.seconds(prompt) / truth(prompt), 1, 0.1);
}

TEST(StepCost, RemembersWhatPromptsCostWhileOnlyAnswersGoOn) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    StepCost cost;
    std::mt19937 random(seed);
    std::lognormal_distribution<double> noise(0., 0.15);
    const auto learn = [&](const StepCost::Work& work) { cost.learn(work, truth(work) * noise(random)); };
    for (int i = 0; i < 40; ++i) {
      StepCost::Work prompt;
      prompt.add(512, 512 * (i % 8));
      learn(prompt);
    }
    StepCost::Work decode;
    for (int i = 0; i < 300; ++i) {
      decode = {};
      for (int answers = 0; answers < 8; ++answers) decode.add(1, 128 + i);
      learn(decode);
    }
    StepCost::Work mixed = decode;
    mixed.add(200, 0);
    EXPECT_NEAR(cost.seconds(mixed) / truth(mixed), 1, 0.2) << seed;
  }
}

TEST(StepCost, StaysFiniteWhenAllStepsAreAlike) {
  StepCost cost;
  StepCost::Work work;
  work.add(4, 100);
  for (int i = 0; i < 100000; ++i) cost.learn(work, 0.01);
  EXPECT_NEAR(cost.seconds(work), 0.01, 1e-3);
  work.add(100, 100);
  EXPECT_TRUE(std::isfinite(cost.seconds(work)));
}

}  // namespace
}  // namespace weft::serve
