// Ids alone, of steps in the host machine, fused and layered.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "decode/generate.h"
#include "fused_parts.h"
#include "ops/draw.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {
namespace {

using testing::FusedParts;
using testing::GgufWriter;
using testing::RandomModelOptions;
using Ids = std::vector<int32_t>;

uint16_t bf16_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

// A model whose head has rows that are alike, in the halves of both workers, and rows that are NaN.
class FusedIds : public FusedParts {
 protected:
  std::string write_ties(bool all_nan) {
    RandomModelOptions of = model_of("llama");
    of.vocab = 283;  // ends within a band
    GgufWriter model = testing::random_model(of);
    std::string& head = model.tensor("output.weight").data;
    const size_t row_bytes = 2 * of.hidden_size, rows = head.size() / row_bytes;
    const auto set = [&](size_t row, float x) {
      for (size_t i = 0; i < of.hidden_size; ++i) {
        const uint16_t bits = bf16_bits(x);
        std::memcpy(head.data() + row * row_bytes + 2 * i, &bits, 2);
      }
    };
    for (size_t row = 0; row < rows; ++row) {
      // The sign of the sum decides which half is the greater one; either is there several times.
      if (row % 60 == 7) set(row, 30.f);
      if (row % 60 == 9) set(row, -30.f);
      if (all_nan || row % 50 == 3) set(row, NAN);
    }
    return write_file(model);
  }
};

Ids first_of_largest(const TensorView& logits) {
  Ids ids;
  const auto vocab = static_cast<size_t>(logits.shape(1));
  for (int64_t row = 0; row < logits.shape(0); ++row)
    ids.push_back(ops::first_of_largest({logits.as<float>() + row * logits.shape(1), vocab}));
  return ids;
}

TEST_F(FusedIds, AreThoseOfTheGreatestLogits) {
  const ModelFile file(write_ties(false)), none(write_ties(true));
  for (const StepForm form : {StepForm::fused, StepForm::layered}) {
    ForwardPass forward(file, options(form));
    EXPECT_TRUE(forward.finds_ids());
    std::vector<ForwardPass::Input> inputs;
    std::vector<Ids> tokens;
    for (int32_t i = 0; i < 6; ++i) tokens.push_back({20 + i, 40 + 3 * i});
    for (const Ids& of : tokens)
      inputs.push_back({.sequence = forward.add_sequence(), .tokens = std::span(of).first(1)});
    inputs[1].tokens = tokens[1], inputs[2].tokens = tokens[2];
    inputs[2].logit_rows = 0;
    const auto forget = [&] {
      for (const auto& input : inputs) forward.truncate(input.sequence, 0);
    };
    // 8 rows, of which five are wanted, at three places.
    const Ids expected = first_of_largest(forward.run(inputs));
    ASSERT_EQ(expected.size(), 5u);
    EXPECT_TRUE(std::ranges::all_of(expected, [](int32_t id) { return id == 7 || id == 9; }));
    forget();
    const auto ids = forward.run_greedy(inputs);
    EXPECT_EQ(Ids(ids.begin(), ids.end()), expected) << to_string(form);
    forget();
    // One row, with logits again behind ids.
    const std::span<const ForwardPass::Input> one(inputs.data(), 1);
    const int32_t alone = forward.run_greedy(one)[0];
    forget();
    EXPECT_EQ(alone, first_of_largest(forward.run(one))[0]) << to_string(form);
    forget();
    EXPECT_EQ(forward.run_greedy(one)[0], alone);

    ForwardPass without(none, options(form));
    const auto sequence = without.add_sequence();
    EXPECT_EQ(without.run_greedy({{.sequence = sequence, .tokens = tokens[0]}})[0], -1) << to_string(form);
  }
  ForwardPass on_cpu(file, {.max_tokens = 64});
  EXPECT_FALSE(on_cpu.finds_ids());
  const auto sequence = on_cpu.add_sequence();
  const Ids token{20};
  const int32_t id = on_cpu.run_greedy({{.sequence = sequence, .tokens = token}})[0];
  on_cpu.truncate(sequence, 0);
  EXPECT_EQ(id, first_of_largest(on_cpu.run({{.sequence = sequence, .tokens = token}}))[0]);
}

// Rows at any place of a step, changed or not, step after step: the ids that the CPU draws from the same logits.
TEST_F(FusedIds, AreDrawnFromTheLogitsOfTheStep) {
  const ModelFile file(write(model_of("llama")));
  const Ids said{20, 21, 20};
  const std::vector<std::pair<int32_t, float>> bias{{30, 3.f}};
  for (const StepForm form : {StepForm::fused, StepForm::layered}) {
    ForwardPass forward(file, options(form));
    const Ids tokens[] = {{20}, {21, 22}, {23}};
    std::vector<ForwardPass::Input> inputs;
    for (const Ids& of : tokens) inputs.push_back({.sequence = forward.add_sequence(), .tokens = of});
    inputs[1].logit_rows = 2, inputs[0].logit_rows = 0;
    for (uint64_t position = 0; position < 3; ++position) {
      std::vector<TokenDraw> how(3, {.params = {.temperature = 2.f, .top_p = 0.99f}, .random = {5, position}});
      how[1].penalties = {.repetition = 2.f};
      how[1].output = said;
      how[1].bias = bias;
      how[2].params = {.temperature = 0.f};
      const TensorView logits = forward.run(inputs);
      Ids expected;
      for (size_t row = 0; row < how.size(); ++row) {
        const auto vocab = static_cast<size_t>(logits.shape(1));
        expected.push_back(ops::RowDraw().draw({logits.as<float>() + row * vocab, vocab}, how[row]));
      }
      for (const auto& input : inputs) forward.truncate(input.sequence, 0);
      const auto ids = forward.run_sampled(inputs, how);
      EXPECT_EQ(Ids(ids.begin(), ids.end()), expected) << to_string(form) << " at " << position;
      for (const auto& input : inputs) forward.truncate(input.sequence, 0);
    }
    const std::vector<TokenDraw> two(2), bad(3, {.params = {.top_p = 2.f}});
    EXPECT_THROW(forward.run_sampled(inputs, two), Error);
    EXPECT_THROW(forward.run_sampled(inputs, bad), Error);
    EXPECT_EQ(forward.length(inputs[0].sequence), 0);
  }
}

// Of a model without ties: what is generated follows from each id.
TEST_F(FusedIds, AreWhatAGreedyAnswerIsMadeOf) {
  const ModelFile file(write(model_of("llama")));
  ForwardPass forward(file, options(StepForm::fused));
  const Ids prompt{30, 31, 32};
  const auto answer_of = [&](const ModelFile& from, ForwardPass& of_model) {
    const Tokenizer words(from);
    decode::Generator generator(of_model, words, {.temperature = 0.f}, {}, 1);
    const auto sequence = of_model.add_sequence();
    const decode::AnswerOptions answer_options{
        .max_tokens = 5, .context = 64, .on_token = [](int32_t, std::string_view) {}, .stopped = [] { return false; }};
    const Ids ids = generator.answer(sequence, prompt, answer_options).ids;
    of_model.release(sequence);
    return ids;
  };
  const Ids ids = answer_of(file, forward);
  const auto sequence = forward.add_sequence();
  Ids expected;
  for (Ids next = prompt; expected.size() < ids.size(); next = {expected.back()})
    expected.push_back(first_of_largest(forward.run({{.sequence = sequence, .tokens = next}}))[0]);
  EXPECT_GE(ids.size(), 1u);
  EXPECT_EQ(ids, expected);

  const ModelFile none(write_ties(true));
  ForwardPass without(none, options(StepForm::fused));
  try {
    answer_of(none, without);
    ADD_FAILURE() << "an id of no possible logit was drawn";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("logits is -inf or NaN; see to the model"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace weft
