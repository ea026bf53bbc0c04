// Stacks of one part of the layers in the host machine: fused, held back, and layered.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "decode/forward.h"
#include "fused_parts.h"
#include "weft/ops.h"

namespace weft {
namespace {

using testing::FusedParts;
using testing::RandomModelOptions;
using Ids = std::vector<int32_t>;

class FusedStacks : public FusedParts {
 protected:
  static std::vector<double> log_probabilities(const TensorView& logits) {
    std::vector<double> all;
    const std::span<const float> row(logits.as<float>(), static_cast<size_t>(logits.size()));
    for (size_t id = 0; id < row.size(); ++id) all.push_back(log_probability(row, static_cast<int32_t>(id)));
    return all;
  }
};

TEST_F(FusedStacks, AgreeWithTheCpuAndWithThemselvesHeldBack) {
  RandomModelOptions of = model_of("llama");
  of.num_layers = 3;
  const ModelFile file(write(of));
  const Ids token{30};
  for (const bool attends : {true, false}) {
    const auto make = [&](const ForwardOptions& with) {
      decode::ModelSources sources = decode::read_sources(file);
      for (decode::LayerSources& layer : sources.layers) {
        if (attends)
          layer.gate_up.clear(), layer.down.clear();
        else
          layer.qkv.clear(), layer.output.clear();
      }
      return make_forward_pass(file.config(), std::move(sources), with);
    };
    const auto run = [&](ForwardPass& forward) {
      const auto sequence = forward.add_sequence();
      const TensorView logits = forward.run({{.sequence = sequence, .tokens = token}});
      std::vector<double> all = log_probabilities(logits);
      forward.release(sequence);
      return all;
    };
    ForwardPass exact = make({.precision = Precision::exact, .max_tokens = 64}), fused = make(options(StepForm::fused)),
                layered = make(options(StepForm::layered));
    const std::vector<double> expected = run(exact), ahead = run(fused), by_layers = run(layered);
    double error = 0, of_layers = 0;
    for (size_t id = 0; id < expected.size(); ++id) {
      error += std::abs(expected[id] - ahead[id]) / static_cast<double>(expected.size());
      of_layers += std::abs(expected[id] - by_layers[id]) / static_cast<double>(expected.size());
    }
    EXPECT_LE(error, 0.025) << attends;
    EXPECT_LE(of_layers, 0.025) << attends;
    decode::StepProbe::hold_back(fused, true);
    EXPECT_EQ(run(fused), ahead) << attends;
  }
}

// By a kernel of its own, whose steps have the same bits.
TEST_F(FusedStacks, SayWhereTheirTimeGoes) {
  const ModelFile file(write(model_of("llama")));
  ForwardPass forward(file, options(StepForm::fused));
  const Ids token{30};
  const TensorView logits = forward.run({{.sequence = forward.add_sequence(), .tokens = token}});
  const std::vector<double> before = log_probabilities(logits);
  const std::string times = decode::StepProbe::trace(forward);
  for (const char* line : {"skew     trip\n", "\nqkv ", "\nattention ", "\nmerge ", "\nhead ", "the clock moves"})
    EXPECT_NE(times.find(line), std::string::npos) << line << "\n" << times;
  EXPECT_EQ(log_probabilities(logits), before);
}

}  // namespace
}  // namespace weft
