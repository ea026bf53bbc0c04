// The fused step on a card against the reference in fp64 and against itself; where there is no card, all is skipped.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "forward_errors.h"
#include "jit/cuda/runtime.h"
#include "ops/draw.h"

namespace weft {
namespace {

using testing::errors_on_card;
using testing::GgufWriter;
using testing::random_ids;
using Ids = std::vector<int32_t>;

// Of a log-probability: x is rounded to bf16 before each product (docs/precision.md).
constexpr double kMeanError = 0.025;

class CardFused : public testing::RandomModelTest {
 protected:
  void SetUp() override {
    const std::string architecture = cuda::cards().architecture(Device::cuda(0));
    if (architecture != "sm_90a") GTEST_SKIP() << "the fused step is for sm_90a; this card runs " << architecture;
  }
};

TEST_F(CardFused, AgreesWithTheReferenceInEveryArchitecture) {
  for (const char* architecture : testing::kArchitectures) {
    const std::string path = write(testing::small_model(architecture, GgufWriter::kBF16));
    for (const size_t at_once : {1, 3, 8, 40})
      EXPECT_LE(errors_on_card(path, random_ids(40, 3), at_once, {.step = StepForm::fused}).mean, kMeanError)
          << architecture << ", " << at_once << " at once";
  }
}

TEST_F(CardFused, AgreesWithTheReferenceInEveryWeightType) {
  for (const uint32_t type : {GgufWriter::kBF16, GgufWriter::kQ8_0, GgufWriter::kQ4_0, GgufWriter::kQ4_1}) {
    const std::string path = write({.weights = type,
                                    .tied = true,
                                    .hidden_size = 576,
                                    .intermediate_size = 1536,
                                    .num_qo_heads = 9,
                                    .num_kv_heads = 3,
                                    .head_dim = 64,
                                    .seed = type + 1});
    for (const size_t at_once : {1, 8})
      EXPECT_LE(errors_on_card(path, random_ids(60, type), at_once, {.step = StepForm::fused}).mean, kMeanError)
          << type << ", " << at_once << " at once";
  }
}

TEST_F(CardFused, GivesTheSameBitsAgainAndBesideOtherRows) {
  const std::string path = write({.weights = GgufWriter::kBF16, .hidden_size = 256, .intermediate_size = 512});
  const ModelFile file(path);
  const auto run = [&](size_t at_once) {
    ForwardPass forward(file, {.device = Device::cuda(0), .max_tokens = 512, .step = StepForm::fused});
    const auto sequence = forward.add_sequence();
    const Ids ids = random_ids(400, 5);
    std::vector<float> all;
    for (size_t i = 0; i < ids.size(); i += at_once) {
      const TensorView logits = forward.run(
          {{.sequence = sequence, .tokens = std::span(ids).subspan(i, at_once), .logit_rows = ForwardPass::kAllRows}});
      all.insert(all.end(), logits.as<float>(), logits.as<float>() + logits.size());
    }
    return all;
  };
  const std::vector<float> alone = run(1);
  for (const size_t at_once : {1, 2, 4, 5, 8}) {
    const std::vector<float> other = run(at_once);
    ASSERT_EQ(alone.size(), other.size());
    EXPECT_EQ(std::memcmp(alone.data(), other.data(), alone.size() * sizeof(float)), 0) << at_once << " at once";
  }
}

// 10,000 steps: five times the same 2,000, whose logits are compared whole.
TEST_F(CardFused, GivesTheSameBitsInTenThousandSteps) {
  const std::string path = write({.weights = GgufWriter::kQ4_1,
                                  .tied = true,
                                  .hidden_size = 576,
                                  .intermediate_size = 1536,
                                  .num_qo_heads = 9,
                                  .num_kv_heads = 3,
                                  .head_dim = 64});
  const ModelFile file(path);
  ForwardPass forward(file, {.device = Device::cuda(0), .max_tokens = 2048, .step = StepForm::fused});
  const Ids ids = random_ids(2000, 5);
  const auto vocab = static_cast<size_t>(file.config().vocab_size);
  std::vector<float> first;
  for (int round = 0; round < 5; ++round) {
    const auto sequence = forward.add_sequence();
    for (size_t i = 0; i < ids.size(); ++i) {
      const TensorView logits = forward.run({{.sequence = sequence, .tokens = std::span(ids).subspan(i, 1)}});
      ASSERT_EQ(logits.size(), static_cast<int64_t>(vocab));
      if (round == 0) first.insert(first.end(), logits.as<float>(), logits.as<float>() + vocab);
      ASSERT_EQ(std::memcmp(first.data() + i * vocab, logits.as<float>(), vocab * sizeof(float)), 0)
          << "step " << i << " of round " << round;
    }
    forward.release(sequence);
  }
}

TEST_F(CardFused, GivesTheIdsOfTheGreatestLogitsLikeLayeredSteps) {
  const std::string path = write({.weights = GgufWriter::kBF16, .hidden_size = 256, .intermediate_size = 512});
  const ModelFile file(path);
  const auto vocab = static_cast<size_t>(file.config().vocab_size);
  for (const StepForm form : {StepForm::fused, StepForm::layered}) {
    ForwardPass forward(file, {.device = Device::cuda(0), .max_tokens = 512, .max_sequences = 8, .step = form});
    const Ids ids = random_ids(40, 5);
    for (const size_t rows : {1, 3, 8}) {
      std::vector<ForwardPass::Input> inputs;
      for (size_t i = 0; i < rows; ++i)
        inputs.push_back({.sequence = forward.add_sequence(), .tokens = std::span(ids).subspan(5 * i, 1)});
      for (int again = 0; again < 3; ++again) {  // as they are, captured, and as a graph
        const auto got = forward.run_greedy(inputs);
        const Ids kept(got.begin(), got.end());
        for (const auto& input : inputs) forward.truncate(input.sequence, 0);
        const TensorView logits = forward.run(inputs);
        for (size_t row = 0; row < rows; ++row)
          EXPECT_EQ(kept[row], ops::first_of_largest({logits.as<float>() + row * vocab, vocab}))
              << to_string(form) << ", row " << row << " of " << rows;
        for (const auto& input : inputs) forward.truncate(input.sequence, 0);
      }
      for (const auto& input : inputs) forward.release(input.sequence);
    }
  }
}

// For tools under which a run takes hundreds of times longer (tools/sanitize_card.sh).
class CardOnceFused : public CardFused {};
TEST_F(CardOnceFused, AFewStepsOfAModelAgreeWithTheReference) {
  const std::string path = write(testing::small_model("llama", GgufWriter::kQ4_1));
  EXPECT_LE(errors_on_card(path, random_ids(5, 3), 3, {.step = StepForm::fused}).mean, kMeanError);
}

// As servers run: prompts by layers, tokens fused, on one cache.
TEST_F(CardFused, GoesOnWhereLayeredStepsEnded) {
  const std::string path = write({.weights = GgufWriter::kQ4_1, .hidden_size = 256, .intermediate_size = 512});
  EXPECT_LE(errors_on_card(path, random_ids(40, 3), 21, {.step = StepForm::automatic}).mean, kMeanError);
  const ModelFile file(path);
  const ForwardPass forward(file, {.device = Device::cuda(0), .max_tokens = 64, .step = StepForm::automatic});
  EXPECT_EQ(forward.step_form(), "steps of up to 8 rows fused, others layered");
}

}  // namespace
}  // namespace weft
