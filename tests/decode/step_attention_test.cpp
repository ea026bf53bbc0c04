// Plans live while they cover the step.
#include "decode/step_attention.h"

#include <gtest/gtest.h>

#include "tests/decode/steps.h"
#include "tests/support/random_model.h"

namespace weft::decode {
namespace {

using testing::RandomModelOptions;
using testing::TempFolder;

// Steps of some sequences, without a model behind them.
class Steps {
 public:
  explicit Steps(const RandomModelOptions& model = {.context_length = 8192}, PlanMode mode = PlanMode::balanced) {
    const std::string path = folder_.path("model.gguf");
    testing::random_model(model).write(path);
    config_ = ModelFile(path).config();
    options_ = {.precision = Precision::exact, .max_tokens = 16384, .max_sequences = 64, .page_size = 16};
    options_.plan_mode = mode;
    options_.fixed_split_size = mode == PlanMode::fixed_split ? 64 : 0;
    options_.team = &team_;
    sequences_.emplace(config_, options_, kv_dtype_of(options_));
    attention_.emplace(config_, options_, Stream::cpu(team_));
  }

  Sequences& sequences() { return *sequences_; }
  void add(int64_t tokens) {
    ids_.push_back(sequences_->add());
    sequences_->append(ids_.back(), tokens);
  }
  void take_back(int64_t tokens) {
    for (const auto id : ids_) sequences_->truncate(id, sequences_->length(id) - tokens);
  }
  std::span<const int32_t> pages(size_t index) const { return sequences_->pages(ids_[index]); }
  void fork(size_t index, int64_t tokens) { ids_.push_back(sequences_->fork(ids_[index], tokens)); }
  // `tokens` more of each; returns how many plans that took.
  int64_t run(int64_t tokens = 1, const SharedPrefixes& prefixes = {}, bool invariant = false) {
    Step step;
    step.invariant = invariant;
    step.prefix_parents.assign(prefixes.parent.begin(), prefixes.parent.end());
    step.prefix_pages.assign(prefixes.num_pages.begin(), prefixes.num_pages.end());
    step.node_of_request.assign(prefixes.node_of_request.begin(), prefixes.node_of_request.end());
    for (const auto id : ids_) {
      sequences_->append(id, tokens);
      testing::add_rows(step, *sequences_, id, std::vector<int32_t>(static_cast<size_t>(tokens)));
    }
    const int64_t before = attention_->num_plans();
    attention_->plan(step, sequences_->num_shares());
    return attention_->num_plans() - before;
  }

 private:
  TempFolder folder_;
  WorkerTeam team_{2};
  ModelConfig config_;
  ForwardOptions options_;
  std::optional<Sequences> sequences_;
  std::optional<StepAttention> attention_;
  std::vector<Sequences::Id> ids_;
};

TEST(StepAttention, KeepsAPlanWhileRequestsGrowALittle) {
  Steps steps;
  steps.add(1000);
  steps.add(600);
  EXPECT_EQ(steps.run(), 1);
  int64_t plans = 0;
  for (int i = 0; i < 25; ++i) plans += steps.run();  // by 50 tokens, and over borders of pages
  EXPECT_EQ(plans, 0);
  for (int i = 0; i < 50; ++i) plans += steps.run();
  EXPECT_GE(plans, 1);  // uneven by now
  EXPECT_LE(plans, 3);
}

TEST(StepAttention, PlansAgainForOtherRequestsOrRows) {
  Steps steps;
  for (int i = 0; i < 4; ++i) steps.add(1000);
  steps.run();
  EXPECT_EQ(steps.run(), 0);
  steps.add(10);
  EXPECT_EQ(steps.run(), 1);
  EXPECT_EQ(steps.run(), 0);
  EXPECT_EQ(steps.run(3), 1);
  EXPECT_EQ(steps.run(), 1);
}

TEST(StepAttention, LooksForSharedPagesAgainAfterAFork) {
  Steps steps;
  steps.add(4096);
  steps.run();
  for (int i = 0; i < 7; ++i) steps.fork(0, 4096);
  EXPECT_EQ(steps.run(), 1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(steps.run(), 0);
}

TEST(StepAttention, KeepsLevelsOfKnownPrefixesAndTakesOthers) {
  Steps steps;
  steps.add(4096);
  for (int i = 0; i < 7; ++i) steps.fork(0, 4096);
  const std::vector<int32_t> parent{-1}, all{256}, some{128}, node(8, 0);
  EXPECT_EQ(steps.run(1, {parent, all, node}), 1);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(steps.run(1, {parent, all, node}), 0);  // own pages are added
  EXPECT_EQ(steps.run(1, {parent, some, node}), 1);
  EXPECT_EQ(steps.run(), 1);
}

TEST(StepAttention, BothKindsOfLayersPlanTogether) {
  RandomModelOptions model{.architecture = "gemma2", .num_qo_heads = 4, .num_kv_heads = 1, .head_dim = 32};
  model.context_length = 8192;
  Steps steps(model);
  steps.add(1000);
  int64_t plans = 0;
  for (int i = 0; i < 20; ++i) {
    const int64_t made = steps.run();
    EXPECT_TRUE(made == 0 || made == 2) << made;
    plans += made;
  }
  EXPECT_LT(plans, 40);
}

TEST(StepAttention, AFixedSplitKeepsItsPlanWithinAChunk) {
  Steps steps({.context_length = 8192}, PlanMode::fixed_split);
  steps.add(6400);
  EXPECT_EQ(steps.run(), 1);
  int64_t plans = 0;
  for (int i = 0; i < 63; ++i) plans += steps.run();
  EXPECT_EQ(plans, 0);
  EXPECT_EQ(steps.run(), 1);  // token 6465: the next chunk
}

TEST(StepAttention, KeepsAPlanForAThirtySecondOfItsTokensMoreAndForNoFewer) {
  Steps steps;
  steps.add(3199);
  EXPECT_EQ(steps.run(), 1);  // of 3200 tokens
  EXPECT_EQ(steps.run(100), 1);
  steps.take_back(99);
  EXPECT_EQ(steps.run(), 1);  // one row again, of 3202 tokens
  int64_t plans = 0;
  for (int i = 0; i < 100; ++i) plans += steps.run();
  EXPECT_EQ(plans, 0);
  EXPECT_EQ(steps.run(), 1);  // token 3303
  steps.take_back(1);
  EXPECT_EQ(steps.run(), 0);  // as many as before
  steps.take_back(2);
  EXPECT_EQ(steps.run(), 1);  // fewer
}

TEST(StepAttention, LooksForSharedPagesAgainWhereverSomebodyTookSome) {
  Steps steps;
  steps.add(4096);
  steps.add(512);
  steps.run();
  EXPECT_EQ(steps.run(), 0);
  const auto forked = steps.sequences().fork(steps.sequences().add(), 0);
  EXPECT_EQ(steps.run(), 1);
  EXPECT_EQ(steps.run(), 0);
  steps.sequences().release(forked);
  steps.sequences().add(steps.pages(1).first(4));
  EXPECT_EQ(steps.run(), 1);
  EXPECT_EQ(steps.run(), 0);
}

TEST(StepAttention, PlansAgainWhereKnownPrefixesAreOtherwiseSharedOut) {
  Steps steps;
  steps.add(4096);
  for (int i = 0; i < 7; ++i) steps.fork(0, 4096);
  const std::vector<int32_t> roots{-1, -1}, chain{-1, 0}, pages{128, 256}, other{64, 256};
  const std::vector<int32_t> halves{0, 0, 0, 0, 1, 1, 1, 1}, turns{0, 1, 0, 1, 0, 1, 0, 1};
  EXPECT_EQ(steps.run(1, {roots, pages, halves}), 1);
  EXPECT_EQ(steps.run(1, {roots, pages, halves}), 0);
  EXPECT_EQ(steps.run(1, {chain, pages, halves}), 1);
  EXPECT_EQ(steps.run(1, {chain, other, halves}), 1);
  EXPECT_EQ(steps.run(1, {chain, other, turns}), 1);
  EXPECT_EQ(steps.run(1, {chain, other, turns}), 0);
}

TEST(StepAttention, AnInvariantStepIsCutByItsOwnSplitWhateverTheOthersTake) {
  Steps steps;
  steps.add(6600);
  EXPECT_EQ(steps.run(1, {}, true), 1);
  int64_t plans = 0;
  for (int i = 6601; i < 6656; ++i) plans += steps.run(1, {}, true);
  EXPECT_EQ(plans, 0);
  EXPECT_EQ(steps.run(1, {}, true), 1);  // token 6657: the next chunk of 256
  EXPECT_EQ(steps.run(), 1);
  EXPECT_EQ(steps.run(), 0);
  EXPECT_EQ(steps.run(1, {}, true), 1);
}

}  // namespace
}  // namespace weft::decode
