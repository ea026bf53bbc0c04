// The walk over a program on a card whose launches do nothing.
#include "tests/decode/recorded_walk.h"
#include "tests/device/cuda/fake_card.h"

namespace weft {
namespace {

using testing::RandomModelOptions;
using testing::RecordedWalk;

class WalkOnACard : public testing::FakeCard {
 protected:
  WalkOnACard() { have_memory_without_bytes(); }
  static std::string runs(RandomModelOptions model) {
    model.num_layers = 1;
    RecordedWalk walk(model, Device::cuda(0));
    walk.run(3, 3);
    return walk.text();
  }
};

TEST_F(WalkOnACard, RunsEveryOperationOnceAndInOrder) {
  for (const RandomModelOptions& model : testing::models_of_every_family()) {
    RecordedWalk walk(model, Device::cuda(0));
    for (const int64_t wanted : {9, 2}) {
      walk.run(9, wanted);
      EXPECT_EQ(walk.operations(), walk.program().operations) << model.architecture;
    }
    walk.run(4, 0);
    EXPECT_EQ(walk.operations().size(), walk.program().last_attend) << model.architecture;
  }
}

TEST_F(WalkOnACard, IsCapturedOnceAndThenRepeated) {
  RecordedWalk walk(testing::models_of_every_family().back(), Device::cuda(0));
  for (const bool walks : {true, true, false, false}) {
    walk.run(1, 1);
    EXPECT_EQ(walk.operations().size(), walks ? walk.program().operations.size() : 0);
  }
}

TEST_F(WalkOnACard, NormsAndGatesInTheProductAndAddsItToTheResidual) {
  EXPECT_EQ(runs({.architecture = "llama"}),
            "embed\n"
            "norm project\n"
            "rotate append\n"
            "attend\n"
            "project add\n"
            "norm project gate\n"
            "project add\n"
            "norm project\n");
  EXPECT_EQ(runs({.architecture = "qwen2", .output_bias = true}),
            "embed\n"
            "norm project\n"
            "add_bias rotate append\n"
            "attend\n"
            "project add_bias add\n"
            "norm project gate\n"
            "project add\n"
            "norm project\n");
  EXPECT_EQ(runs({.architecture = "gemma2", .output_bias = true}),
            "embed\n"
            "norm project\n"
            "rotate append\n"
            "attend\n"
            "project add_bias norm add\n"
            "norm project gate\n"
            "project norm add\n"
            "norm project\n"
            "soft_cap\n");
  EXPECT_NE(runs({.architecture = "gemma3"}).find("\nnorm_heads rotate append\n"), std::string::npos);
}

}  // namespace
}  // namespace weft
