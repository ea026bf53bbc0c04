// The ids of rows' greatest logits, in the host machine, against those that the CPU draws.
#include "ops/cuda/greedy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "ops/draw.h"
#include "tests/ops/cuda/host_card.h"

namespace weft::ops {
namespace {

class CardGreedy : public testing::HostCard {
 protected:
  CardGreedy() : HostCard(true) {}
  void expect_ids(const GreedyRows& greedy, const std::vector<float>& logits, int64_t columns) {
    const auto rows = static_cast<int64_t>(logits.size()) / columns;
    const int* const ids = greedy.run(place(logits), rows, Stream::cuda(nullptr));
    for (int64_t row = 0; row < rows; ++row)
      EXPECT_EQ(ids[row], first_of_largest(std::span(logits).subspan(static_cast<size_t>(row * columns),
                                                                     static_cast<size_t>(columns))))
          << "row " << row << " of " << rows << ", " << columns << " columns";
  }
  std::mt19937 random_{20261127};
};

// One part of a row, several, and a last one that is shorter; more rows and fewer on one memory.
TEST_F(CardGreedy, IsTheFirstOfTheLargest) {
  for (const int64_t columns : {1, 70, 5000, 9001}) {
    const GreedyRows greedy(Device::cuda(0), 5, columns);
    for (const int64_t rows : {1, 5, 2}) {
      std::vector<float> logits(static_cast<size_t>(rows * columns));
      std::normal_distribution<float> normal;
      for (float& logit : logits) logit = normal(random_);
      expect_ids(greedy, logits, columns);
      for (float& logit : logits) logit = std::round(logit);  // ties, all over the row
      expect_ids(greedy, logits, columns);
    }
  }
}

TEST_F(CardGreedy, IsNeverNanNorMinusInfinity) {
  constexpr int64_t kColumns = 5000;
  const GreedyRows greedy(Device::cuda(0), 8, kColumns);
  std::vector<float> logits(8 * kColumns, -INFINITY);
  const auto at = [&](int64_t row, int64_t column) -> float& {
    return logits[static_cast<size_t>(row * kColumns + column)];
  };
  for (int64_t i = 0; i < kColumns; ++i) at(1, i) = NAN;
  for (int64_t i = 0; i < kColumns; ++i) at(2, i) = i % 2 == 0 ? NAN : -INFINITY;
  at(3, 4999) = -3e38f;
  at(4, 0) = NAN, at(4, 17) = -1.f, at(4, 4000) = -1.f;
  at(5, 33) = INFINITY, at(5, 31) = 1e30f, at(5, 2600) = INFINITY;
  at(6, 2048) = -0.f, at(6, 2049) = 0.f;
  at(7, 3) = NAN, at(7, 2) = 1.f, at(7, 4) = 1.f;
  EXPECT_EQ(greedy.run(place(logits), 8, Stream::cuda(nullptr))[0], -1);
  expect_ids(greedy, logits, kColumns);
}

}  // namespace
}  // namespace weft::ops
