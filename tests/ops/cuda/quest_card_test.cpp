// Steps of Quest on a card, in one CUDA graph.
#include <gtest/gtest.h>

#include "tests/ops/cuda/quest_steps.h"

namespace weft {
namespace {

TEST(QuestOnCard, StepsInOneGraphAreTheCpus) {
  for (const testing::QuestCase& of : testing::quest_cases()) testing::QuestSteps(of, 1).run(1000);
}

}  // namespace
}  // namespace weft
