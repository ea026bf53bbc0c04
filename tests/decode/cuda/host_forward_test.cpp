// The forward pass on a card operation by operation, every kernel of it in the host machine, against the reference in
// fp64. The fused step: host_fused_test.cpp.
#include <gtest/gtest.h>

#include "forward_errors.h"
#include "tests/ops/cuda/host_card.h"

namespace weft {
namespace {

using testing::errors_on_card;
using testing::GgufWriter;
using testing::random_ids;
using testing::RandomModelOptions;
using Ids = std::vector<int32_t>;

class ForwardOnACard : public testing::HostCard, protected testing::RandomModels {};

TEST_F(ForwardOnACard, AgreesWithTheReferenceInEveryArchitecture) {
  for (const char* architecture : testing::kArchitectures)
    EXPECT_LE(
        errors_on_card(write(testing::small_model(architecture)), random_ids(13, 3), 9, {.precision = Precision::exact})
            .largest,
        1e-3)
        << architecture;
}

TEST_F(ForwardOnACard, AgreesWithTheReferenceWithABiasOfTheOutputProjection) {
  for (const char* architecture : {"llama", "gemma2"}) {
    RandomModelOptions model = testing::small_model(architecture);
    model.output_bias = true;
    EXPECT_LE(errors_on_card(write(model), random_ids(13, 3), 9, {.precision = Precision::exact}).largest, 1e-3)
        << architecture;
  }
}

TEST_F(ForwardOnACard, AgreesWithTheReferenceInEveryWeightType) {
  for (const uint32_t type : {GgufWriter::kF16, GgufWriter::kBF16, GgufWriter::kQ8_0, GgufWriter::kQ5_0,
                              GgufWriter::kQ4_0, GgufWriter::kQ4_1, GgufWriter::kQ4_K, GgufWriter::kQ6_K}) {
    const bool large = type == GgufWriter::kQ4_K || type == GgufWriter::kQ6_K;  // in blocks of 256
    const std::string path = write({.weights = type,
                                    .tied = type % 2 == 0,
                                    .num_layers = 1,
                                    .hidden_size = large ? 256u : 64u,
                                    .intermediate_size = large ? 256u : 96u,
                                    .num_qo_heads = 4,
                                    .num_kv_heads = 2,
                                    .head_dim = large ? 64u : 16u,
                                    .seed = type + 1});
    EXPECT_LE(errors_on_card(path, random_ids(3, type), 2, {.precision = Precision::exact}).largest, 1e-3) << type;
  }
}

// By the library of products, and with a gate of its own.
TEST_F(ForwardOnACard, AgreesWithTheReferenceOnPromptsOfManyRows) {
  const std::string path = write(testing::small_model("llama", GgufWriter::kQ4_1));
  EXPECT_LE(errors_on_card(path, random_ids(21, 3), 20, {.precision = Precision::exact}).largest, 1e-3);
}

TEST_F(ForwardOnACard, KeepsTheStatedErrorWithEveryCache) {
  const std::string path = write(testing::small_model("llama"));
  const Ids ids = random_ids(9, 4);
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
    EXPECT_LE(errors_on_card(path, ids, 8, {.kv_dtype = dtype, .step = StepForm::layered}).mean, 0.015)
        << to_string(dtype);
  EXPECT_LE(
      errors_on_card(path, ids, 8, {.precision = Precision::fast, .kv_dtype = DType::int8, .step = StepForm::layered})
          .mean,
      0.07);
}

// Sequences of several lengths in one step, of which some give all logits, one goes on from a fork's middle of a page.
TEST_F(ForwardOnACard, RunsSequencesTogetherAsAlone) {
  const ModelFile file(write(testing::small_model("llama")));
  const ForwardOptions options{
      .precision = Precision::exact, .device = Device::cuda(0), .max_tokens = 64, .max_sequences = 3, .page_size = 4};
  ForwardPass forward(file, options);
  const Ids a = random_ids(6, 1), b = random_ids(3, 2), next{5, 6};
  const auto first = forward.add_sequence(), second = forward.add_sequence();
  forward.run({{.sequence = first, .tokens = a}, {.sequence = second, .tokens = b}});
  const auto fork = forward.fork(first, 5);
  const TensorView together = forward.run({{.sequence = fork, .tokens = next, .logit_rows = ForwardPass::kAllRows},
                                           {.sequence = second, .tokens = std::span(next).first(1)},
                                           {.sequence = first, .tokens = std::span(next).last(1)}});
  ASSERT_EQ(together.shape(0), 4);
  const auto vocab = static_cast<size_t>(together.shape(1));
  const std::vector<float> got(together.as<float>(), together.as<float>() + 4 * vocab);
  Ids wholes[] = {Ids(a.begin(), a.begin() + 5), b, a};
  wholes[0].insert(wholes[0].end(), next.begin(), next.end());
  wholes[1].push_back(next[0]);
  wholes[2].push_back(next[1]);
  const size_t rows[] = {1, 2, 3};
  ForwardPass alone(file, options);
  for (int i = 0; i < 3; ++i) {
    const auto sequence = alone.add_sequence();
    const TensorView expected = alone.run({{.sequence = sequence, .tokens = wholes[i]}});
    for (size_t id = 0; id < vocab; ++id)
      ASSERT_NEAR(got[rows[i] * vocab + id], expected.as<float>()[id], 1e-4) << i << " " << id;
    alone.release(sequence);
  }
}

// Products of few rows and of many have sums in orders of their own: who asks for it gets one of them, whatever stands
// beside.
TEST_F(ForwardOnACard, GivesInvariantInputsTheSameBitsBesideOthers) {
  const ModelFile file(write({.weights = GgufWriter::kQ4_1,
                              .hidden_size = 64,
                              .intermediate_size = 96,
                              .num_qo_heads = 4,
                              .num_kv_heads = 2,
                              .head_dim = 16}));
  const Ids ids = random_ids(5, 1), others = random_ids(12, 2);
  std::vector<float> got[2];
  for (const bool beside : {false, true}) {
    ForwardPass forward(file, {.device = Device::cuda(0), .max_tokens = 64, .max_sequences = 2});
    const auto sequence = forward.add_sequence();
    forward.run({{.sequence = sequence, .tokens = std::span(ids).first(4), .invariant = true}});
    std::vector<ForwardPass::Input> inputs{{.sequence = sequence, .tokens = std::span(ids).last(1), .invariant = true}};
    if (beside) inputs.push_back({.sequence = forward.add_sequence(), .tokens = others, .invariant = true});
    const float* logits = forward.run(inputs).as<float>();
    got[beside].assign(logits, logits + file.config().vocab_size);
  }
  EXPECT_EQ(got[0], got[1]);
}

}  // namespace
}  // namespace weft
