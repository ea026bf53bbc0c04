// The forward pass on a card against the reference in fp64 and against the CPU; where there is no card, all is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "forward_errors.h"

namespace weft {
namespace {

using testing::errors_on_card;
using testing::GgufWriter;
using testing::random_ids;
using Ids = std::vector<int32_t>;

// Of the mean error of a log-probability: limits for these models (docs/precision.md).
struct Allowed {
  Precision precision;
  double mean;
  std::vector<DType> caches;
};
std::vector<Allowed> allowed() {
  return {{Precision::exact, 0.001, {DType::fp32}},
          {Precision::standard, 0.015, {DType::fp32, DType::fp16, DType::bf16}},
          {Precision::fast, 0.07, {DType::fp32, DType::fp16, DType::bf16, DType::int8}}};
}

int32_t most_probable(const TensorView& logits) {
  const float* const row = logits.as<float>();
  return static_cast<int32_t>(std::max_element(row, row + logits.size()) - row);
}

// The most probable token each step, `count` of them after the prompt.
Ids greedy(const ModelFile& file, Device device, const Ids& prompt, int count) {
  ForwardPass forward(file, {.precision = Precision::exact, .device = device, .max_tokens = 256});
  const auto sequence = forward.add_sequence();
  Ids ids{most_probable(forward.run({{.sequence = sequence, .tokens = prompt}}))};
  while (static_cast<int>(ids.size()) < count)
    ids.push_back(most_probable(forward.run({{.sequence = sequence, .tokens = std::span(ids).last(1)}})));
  return ids;
}

using CardForward = testing::RandomModelTest;

// For tools under which a run takes hundreds of times longer (tools/sanitize_card.sh): a prompt, a step that is
// launched kernel by kernel, and two that are a graph.
using CardOnce = testing::RandomModelTest;
TEST_F(CardOnce, AFewStepsOfAModelAgreeWithTheReference) {
  const std::string path = write(testing::small_model("llama", GgufWriter::kQ4_1));
  EXPECT_LE(errors_on_card(path, random_ids(6, 3), 3, {.precision = Precision::exact}).largest, 1e-3);
}

// A step of a token is a graph from its second time on, a prompt of 21 goes through the library of products.
TEST_F(CardForward, GivesTheGreedyTokensOfTheCpuInEveryArchitecture) {
  for (const char* architecture : testing::kArchitectures)
    for (const size_t prompt : {1, 9, 21}) {
      const ModelFile file(write(testing::small_model(architecture)));
      const Ids ids = random_ids(prompt, prompt);
      EXPECT_EQ(greedy(file, Device::cuda(0), ids, 24), greedy(file, Device::cpu(), ids, 24))
          << architecture << " after " << prompt;
    }
}

TEST_F(CardForward, KeepsTheStatedErrorInEveryArchitectureWithEveryCache) {
  for (const char* architecture : testing::kArchitectures) {
    const std::string path = write(testing::small_model(architecture));
    for (const Allowed& of : allowed())
      for (const DType cache : of.caches)
        EXPECT_LE(errors_on_card(path, random_ids(40, 3), 21,
                                 {.precision = of.precision, .kv_dtype = cache, .step = StepForm::layered})
                      .mean,
                  of.mean)
            << architecture << " " << to_string(cache);
  }
}

TEST_F(CardForward, AgreesWithTheReferenceInEveryWeightType) {
  for (const uint32_t type : {GgufWriter::kF16, GgufWriter::kBF16, GgufWriter::kQ8_0, GgufWriter::kQ5_0,
                              GgufWriter::kQ4_0, GgufWriter::kQ4_1, GgufWriter::kQ4_K, GgufWriter::kQ6_K}) {
    const std::string path = write({.weights = type,
                                    .tied = type % 2 == 0,
                                    .hidden_size = 256,
                                    .intermediate_size = 512,
                                    .num_qo_heads = 4,
                                    .num_kv_heads = 2,
                                    .head_dim = 64,
                                    .seed = type + 1});
    EXPECT_LE(errors_on_card(path, random_ids(24, type), 20, {.precision = Precision::exact}).largest, 1e-3) << type;
  }
}

// The demo's model, which WEFT_TEST_MODEL holds (tools/run_model_tests.sh).
class CardDemoModel : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("WEFT_TEST_MODEL");
    if (path == nullptr)
      GTEST_SKIP() << "needs a model: WEFT_TEST_MODEL is not set; make test-model fetches it and sets that";
    path_ = path;
    std::ifstream text(WEFT_TEST_DATA "/english.txt");
    ids_ = Tokenizer(ModelFile(path_)).encode(std::string(std::istreambuf_iterator<char>(text), {}));
    ids_.resize(100);
  }
  std::string path_;
  Ids ids_;
};

TEST_F(CardDemoModel, GivesTheGreedyTokensOfTheCpu) {
  const ModelFile file(path_);
  const Ids prompt(ids_.begin(), ids_.begin() + 40);
  EXPECT_EQ(greedy(file, Device::cuda(0), prompt, 64), greedy(file, Device::cpu(), prompt, 64));
}

TEST_F(CardDemoModel, KeepsTheStatedErrorOfEachPrecisionWithEveryCache) {
  const std::vector<double> expected = testing::reference_log_probabilities(path_, ids_, 8);
  const ModelFile file(path_);
  const auto vocab = static_cast<size_t>(file.config().vocab_size);
  for (const Allowed& of : allowed())
    for (const DType cache : of.caches) {
      ForwardPass forward(file, {.precision = of.precision,
                                 .device = Device::cuda(0),
                                 .max_tokens = 256,
                                 .kv_dtype = cache,
                                 .step = StepForm::layered});
      const TensorView logits =
          forward.run({{.sequence = forward.add_sequence(), .tokens = ids_, .logit_rows = ForwardPass::kAllRows}});
      double sum = 0;
      for (size_t row = 0; row + 1 < ids_.size(); ++row) {
        const auto next = static_cast<size_t>(ids_[row + 1]);
        sum += std::abs(log_probability({logits.as<float>() + row * vocab, vocab}, ids_[row + 1]) -
                        expected[row * vocab + next]);
      }
      EXPECT_LE(sum / static_cast<double>(ids_.size() - 1), of.mean) << to_string(cache);
    }
}

}  // namespace
}  // namespace weft
