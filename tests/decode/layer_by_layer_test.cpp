// The walk over a program on the CPU; on a card: cuda/card_walk_test.cpp.
#include "decode/layer_by_layer.h"

#include <gtest/gtest.h>

#include "decode/forward.h"
#include "tests/decode/recorded_walk.h"

namespace weft::decode {
namespace {

using testing::RandomModelOptions;
using testing::RecordedWalk;

TEST(LayerByLayer, RunsEveryOperationOnceAndInOrderOnTheCpu) {
  for (const RandomModelOptions& model : testing::models_of_every_family()) {
    RecordedWalk walk(model, Device::cpu());
    for (const int64_t wanted : {9, 2}) {
      walk.run(9, wanted);
      EXPECT_EQ(walk.operations(), walk.program().operations) << model.architecture;
    }
    walk.run(1, 1);
    EXPECT_EQ(walk.operations(), walk.program().operations) << model.architecture;
  }
}

TEST(LayerByLayer, EndsBeforeTheLastAttentionWhereNoLogitsAreWanted) {
  for (const RandomModelOptions& model : testing::models_of_every_family()) {
    RecordedWalk walk(model, Device::cpu());
    walk.run(4, 0);
    const std::vector<Operation>& all = walk.program().operations;
    EXPECT_EQ(walk.operations(),
              std::vector(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(walk.program().last_attend)))
        << model.architecture;
  }
}

std::string runs_on_cpu(RandomModelOptions model) {
  model.num_layers = 1;
  RecordedWalk walk(model, Device::cpu());
  walk.run(3, 3);
  return walk.text();
}

TEST(LayerByLayer, TheCpuMakesRowsInTheProductThatReadsThem) {
  EXPECT_EQ(runs_on_cpu({.architecture = "llama"}),
            "embed\n"
            "norm project\n"
            "rotate\n"
            "append\n"
            "attend\n"
            "project\n"
            "add norm project gate\n"
            "project\n"
            "add norm project\n");
  EXPECT_EQ(runs_on_cpu({.architecture = "qwen2", .output_bias = true}),
            "embed\n"
            "norm project\n"
            "add_bias rotate\n"
            "append\n"
            "attend\n"
            "project\n"
            "add_bias add norm project gate\n"
            "project\n"
            "add norm project\n");
  EXPECT_EQ(runs_on_cpu({.architecture = "gemma2", .output_bias = true}),
            "embed\n"
            "norm project\n"
            "rotate\n"
            "append\n"
            "attend\n"
            "project\n"
            "add_bias norm add norm project gate\n"
            "project\n"
            "norm add norm project\n"
            "soft_cap\n");
  EXPECT_NE(runs_on_cpu({.architecture = "gemma3"}).find("\nnorm_heads rotate\nappend\n"), std::string::npos);
}

// Those of a file are checked when it is read; others may be made by hand.
TEST(LayerByLayer, IsNotMadeOfWeightsThatAreNotTheProgramsOwn) {
  const testing::TempFolder folder;
  const std::string path = folder.path("model.gguf");
  testing::random_model({.architecture = "qwen2"}).write(path);
  const ModelFile file(path);
  const auto refused = [&](const std::function<void(ModelSources&)>& change) {
    ModelSources sources = read_sources(file);
    change(sources);
    try {
      make_forward_pass(file.config(), std::move(sources), {});
    } catch (const InternalError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused([](ModelSources&) {}), "");
  const auto expect = [&](const std::function<void(ModelSources&)>& change, const std::string& text) {
    const std::string message = refused(change);
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  expect([](ModelSources& s) { s.layers[1].vectors.qkv_bias.clear(); }, "the weights have 1 rows of 0 as qkv_bias");
  expect([](ModelSources& s) { s.layers[0].gate_up.pop_back(); }, "the weights have 160 rows of 96 as gate_up");
  expect([](ModelSources& s) { s.output_norm.pop_back(); }, "the weights have 1 rows of 95 as output_norm");
  expect([](ModelSources& s) { s.layers.pop_back(); }, "weights of 1 layers for a program of 2");
}

// An executor that computes nothing and fuses all that it is let.
class EverythingAtOnce : public Executor {
 public:
  size_t weight_bytes() const override { return 0; }
  bool fuses(const Operation&, const Operation&) const override { return true; }
  void plan(const Step&) override {}
  void upload(const Step&) override {}
  void enqueue(const Step&, const StepOutput&, const std::function<void()>&) override {}
  void synchronize() override {}
  void run(std::span<const Operation>) override {}
  void keep(const std::vector<int64_t>&) override {}
};

TEST(LayerByLayer, FusesNothingWithTheLastAttention) {
  ModelConfig config;
  config.num_layers = 3;
  const Program program = make_program(config);
  const std::vector<std::span<const Operation>> fused = fuse(program, EverythingAtOnce());
  ASSERT_EQ(fused.size(), 3u);
  EXPECT_EQ(fused[0].data(), program.operations.data());
  EXPECT_EQ(fused[1].data(), &program.operations[program.last_attend]);
  EXPECT_EQ(fused[1].size(), 1u);
  EXPECT_EQ(fused[2].data(), fused[1].data() + 1);
  EXPECT_EQ(fused[2].data() + fused[2].size(), program.operations.data() + program.operations.size());
}

}  // namespace
}  // namespace weft::decode
