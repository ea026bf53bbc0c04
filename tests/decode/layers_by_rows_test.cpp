// Which of two forms of the layers a step goes through.
#include "decode/layers_by_rows.h"

#include <gtest/gtest.h>

#include <optional>
#include <tuple>

namespace weft::decode {
namespace {

struct Counted : Layers {
  int runs = 0, replays = 0;
  std::optional<ErrorCode> lacks = {};
  StepSeconds of;
  bool finds_ids = true;
  int64_t most = 8;  // rows, fused
  void run(const Step&, const StepOutput&) override {
    ++runs;
    if (lacks) throw Error(*lacks, "nothing is left");
  }
  int64_t most_rows(StepForm form) const override { return form == StepForm::fused ? most : Layers::most_rows(form); }
  bool has_greedy() const override { return finds_ids; }
  double replay(const Step&, const StepOutput&, int) override { return ++replays; }
  size_t weight_bytes() const override { return 0; }
  const StepSeconds& seconds() const override { return of; }
};

Step step_of(int rows) {
  Step step;
  step.tokens.resize(static_cast<size_t>(rows));
  return step;
}

TEST(LayersByRows, MayGiveAllStepsOfFewRowsToTheOnes) {
  auto few = std::make_unique<Counted>(), many = std::make_unique<Counted>();
  Counted &of_few = *few, &of_many = *many;
  LayersByRows layers(std::move(few), std::move(many), StepForm::fused);
  Step invariant = step_of(20), shared = step_of(2);
  invariant.invariant = true;
  shared.prefix_parents = {-1};
  for (const Step& step : {step_of(8), invariant, shared}) layers.run(step, {});
  EXPECT_EQ(of_few.runs, 3);
  layers.run(step_of(9), {});
  EXPECT_EQ(of_many.runs, 1);
}

TEST(LayersByRows, GivesStepsOfFewRowsToTheOnesAndOthersToTheOthers) {
  auto few = std::make_unique<Counted>(), many = std::make_unique<Counted>();
  Counted &of_few = *few, &of_many = *many;
  LayersByRows layers(std::move(few), std::move(many), StepForm::automatic);
  const auto goes_to_few = [&](const Step& step) {
    const int few_before = of_few.runs, many_before = of_many.runs;
    layers.run(step, {});
    EXPECT_EQ(of_few.runs + of_many.runs, few_before + many_before + 1);
    const bool is_few = of_few.runs > few_before;
    EXPECT_EQ(&layers.seconds(), is_few ? &of_few.of : &of_many.of);
    return is_few;
  };
  EXPECT_TRUE(goes_to_few(step_of(1)));
  EXPECT_TRUE(goes_to_few(step_of(8)));
  EXPECT_FALSE(goes_to_few(step_of(9)));
  Step invariant = step_of(1), shared = step_of(2);
  invariant.invariant = true;
  shared.prefix_parents = {-1};
  EXPECT_FALSE(goes_to_few(invariant));
  EXPECT_FALSE(goes_to_few(shared));
  layers.replay(step_of(8), {}, 1);
  layers.replay(step_of(9), {}, 1);
  EXPECT_EQ(of_few.replays, 1);
  EXPECT_EQ(of_many.replays, 1);
  EXPECT_TRUE(layers.has_greedy());
  of_many.finds_ids = false;
  EXPECT_FALSE(layers.has_greedy());
  // A measurement takes the other form for the same steps.
  EXPECT_TRUE(layers.choose(StepForm::layered));
  EXPECT_FALSE(goes_to_few(step_of(1)));
  EXPECT_TRUE(layers.choose(StepForm::fused));
  EXPECT_TRUE(goes_to_few(step_of(1)));
  EXPECT_FALSE(goes_to_few(step_of(9)));
  EXPECT_FALSE(of_few.choose(StepForm::layered));
}

TEST(LayersByRows, GivesStepsWithoutMemoryToTheOthersWhereItMay) {
  for (const auto& [form, lacks, falls_back] : {std::tuple(StepForm::automatic, ErrorCode::out_of_memory, true),
                                                std::tuple(StepForm::automatic, ErrorCode::device_failed, false),
                                                std::tuple(StepForm::fused, ErrorCode::out_of_memory, false)}) {
    auto few = std::make_unique<Counted>(), many = std::make_unique<Counted>();
    Counted &of_few = *few, &of_many = *many;
    LayersByRows layers(std::move(few), std::move(many), form);
    of_few.lacks = lacks;
    const auto run = [&] { layers.run(step_of(1), {}); };
    if (falls_back) {
      run();
      EXPECT_EQ(&layers.seconds(), &of_many.of);
    } else {
      EXPECT_THROW(run(), Error);
    }
    EXPECT_EQ(of_few.runs, 1);
    EXPECT_EQ(of_many.runs, falls_back ? 1 : 0);
    of_many.lacks = ErrorCode::out_of_memory;
    EXPECT_THROW(layers.run(step_of(9), {}), Error);
  }
}

// What it needs grows with contexts: each step of as many tokens would ask for memory in vain.
TEST(LayersByRows, AsksForMemoryAgainWhereStepsHaveFewerTokens) {
  auto few = std::make_unique<Counted>(), many = std::make_unique<Counted>();
  Counted &of_few = *few, &of_many = *many;
  LayersByRows layers(std::move(few), std::move(many), StepForm::automatic);
  // Two requests, a row each.
  const auto asks = [&](int32_t tokens, int32_t of_other) {
    Step step = step_of(2);
    step.positions = {tokens - 1, of_other - 1};
    step.qo_indptr = {0, 1, 2};
    const int before = of_few.runs, others = of_many.runs;
    layers.run(step, {});
    EXPECT_EQ(of_many.runs - others, of_few.lacks || of_few.runs == before ? 1 : 0);
    const int replays = of_few.replays;
    layers.replay(step, {}, 1);
    EXPECT_EQ(of_few.replays - replays, of_few.lacks || of_few.runs == before ? 0 : 1);
    return of_few.runs > before;
  };
  EXPECT_TRUE(asks(40, 50));
  of_few.lacks = ErrorCode::out_of_memory;
  EXPECT_TRUE(asks(41, 51));
  EXPECT_FALSE(asks(42, 52));
  EXPECT_FALSE(asks(91, 1));
  EXPECT_TRUE(asks(90, 1));
  EXPECT_FALSE(asks(41, 50));
  of_few.lacks.reset();
  EXPECT_FALSE(asks(41, 50));
  EXPECT_TRUE(asks(40, 50));
  // One ran: from there on all ask again.
  EXPECT_TRUE(asks(41, 50));
  EXPECT_TRUE(asks(100, 100));
}

// As many as the fused form's kernels have room for.
TEST(LayersByRows, GivesTheFusedFormAsManyRowsAsItTakes) {
  auto few = std::make_unique<Counted>();
  Counted& of_few = *few;
  of_few.most = 2;
  LayersByRows layers(std::move(few), std::make_unique<Counted>(), StepForm::automatic);
  EXPECT_EQ(layers.most_rows(StepForm::fused), 2);
  for (const StepForm form : {StepForm::layered, StepForm::automatic}) EXPECT_GT(layers.most_rows(form), 1 << 20);
  for (const int rows : {1, 2, 3, 4}) layers.run(step_of(rows), {});
  EXPECT_EQ(of_few.runs, 2);
}

}  // namespace
}  // namespace weft::decode
