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
  EXPECT_NEAR(truth(with), 0.12, 0.012);
  EXPECT_EQ(cost.rows_that_fit(decode, 500, 1e-4, 512), 0);
  EXPECT_EQ(cost.rows_that_fit(decode, 500, 100, 512), 512);
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
