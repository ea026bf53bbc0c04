// What run promises beside right numbers: the same bits, replayable workspaces, hooks across splits, isolation.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "attention/kernel.h"
#include "problem.h"

namespace weft {
namespace {

using testing::Case;
using testing::Problem;
using testing::Target;

class AttentionRun : public ::testing::TestWithParam<const Target*> {
 protected:
  AttentionKernel kernel(const Problem& problem) const {
    AttentionSpec spec = problem.spec();
    spec.compute = compute(problem);
    return build_on(*GetParam(), spec);
  }
  DType compute(const Problem& problem) const { return GetParam()->compute_types(problem.spec()).back(); }

  // The bytes of o and lse after a run.
  std::string outputs(Problem& problem, int workers, PlanMode mode = PlanMode::balanced, int split = 0) {
    const AttentionKernel k = kernel(problem);
    const Plan plan = k.plan(problem.input(workers, mode, split));
    problem.poison_outputs();
    run_on(*GetParam(), k, plan, problem.tensors());
    return problem.outputs();
  }

  WorkerTeam team_{2};
};
INSTANTIATE_TEST_SUITE_P(Targets, AttentionRun,
                         ::testing::ValuesIn(testing::targets().begin(), testing::targets().end()),
                         [](const auto& param_info) { return param_info.param->name(); });

Case mixed_case() {
  Case c;
  c.q_dtype = c.kv_dtype = c.o_dtype = DType::bf16;
  c.mask = Mask::causal;
  c.group = 3;
  c.kv_heads = 2;
  c.lengths = {{1, 700}, {40, 200}, {1, 3}, {2, 260}, {1, 0}, {5, 5}};
  return c;
}

TEST_P(AttentionRun, GivesTheSameBitsTwice) {
  Problem problem(mixed_case());
  for (const int workers : {1, 5, 64}) EXPECT_EQ(outputs(problem, workers), outputs(problem, workers));
}

TEST_P(AttentionRun, FixedSplitGivesTheSameBitsForAnyWorkerCount) {
  Problem problem(mixed_case());
  const std::string one = outputs(problem, 1, PlanMode::fixed_split, 128);
  for (const int workers : {2, 3, 7, 132}) EXPECT_EQ(outputs(problem, workers, PlanMode::fixed_split, 128), one);
  // The promise is not empty: other chunks give other bits.
  EXPECT_NE(outputs(problem, 1, PlanMode::fixed_split, 64), one);
}

TEST_P(AttentionRun, FixedSplitGivesTheSameBitsAloneAndInABatch) {
  for (const auto& lengths : {std::pair{1, 700}, {40, 200}, {2, 260}}) {
    Case c = mixed_case();
    c.layout = Layout::hnd;
    c.form = KvForm::ragged;
    c.lengths = {lengths};
    Problem alone(c);
    // The same numbers as request 0 of a batch: queries and keys are drawn in order, so they are copied over.
    c.lengths = {lengths, {1, 900}, {17, 64}};
    Problem batch(c);
    const AttentionTensors from = alone.tensors(), to = batch.tensors();
    const auto bytes = [](const TensorView& t) { return static_cast<size_t>(t.size() * bits_of(t.dtype()) / 8); };
    std::memcpy(to.q.data(), from.q.data(), bytes(from.q));
    for (int head = 0; head < c.kv_heads; ++head)
      for (const auto& [a, b] : {std::pair{from.kv.k, to.kv.k}, {from.kv.v, to.kv.v}}) {
        const size_t row = static_cast<size_t>(a.shape(2) * 2);
        std::memcpy(static_cast<char*>(b.data()) + head * b.stride(0) * 2,
                    static_cast<char*>(a.data()) + head * a.stride(0) * 2, static_cast<size_t>(lengths.second) * row);
      }
    outputs(alone, 1, PlanMode::fixed_split, 128);
    outputs(batch, 3, PlanMode::fixed_split, 128);
    EXPECT_EQ(std::memcmp(from.o.data(), to.o.data(), bytes(from.o)), 0) << lengths.first << " of " << lengths.second;
    EXPECT_EQ(std::memcmp(from.lse.data(), to.lse.data(), bytes(from.lse)), 0);
  }
}

TEST_P(AttentionRun, OneWorkspaceReplaysManyPlans) {
  Case c = mixed_case();
  const AttentionKernel k = kernel(Problem(c));
  Workspace shared(GetParam()->device(), 8 << 20);
  for (unsigned i = 0; i < 12; ++i) {
    c.seed = i;
    c.lengths = {{1 + static_cast<int>(i) % 4, 40 + 77 * static_cast<int>(i)}, {1, 300}, {static_cast<int>(i), 100}};
    Problem problem(c);
    const int workers = 1 + static_cast<int>(i) % 5;
    const std::string fresh = outputs(problem, workers);
    for (int again = 0; again < 2; ++again) {
      const Plan plan = k.plan(problem.input(workers));
      plan.upload(shared, GetParam()->stream(team_));
      for (int layer = 0; layer < 2; ++layer) {
        problem.poison_outputs();
        const testing::Placed placed(*GetParam(), problem.tensors());
        k.run(shared, placed.tensors(), GetParam()->stream(team_));
        placed.fetch();
        ASSERT_EQ(problem.outputs(), fresh) << "plan " << i << " layer " << layer;
      }
    }
  }
}

TEST_P(AttentionRun, LogitsOfTenThousandStayWithinTheirError) {
  Case c = mixed_case();
  c.q_dtype = c.kv_dtype = c.o_dtype = DType::fp32;
  c.query_scale = 2500;  // logits are about N(0, 2500^2): the largest reach 10^4
  Problem problem(c);
  const MeasuredReference& expected = problem.reference();
  const AttentionTensors t = problem.tensors();
  outputs(problem, 3);
  double largest = 0;
  for (const double lse : expected.lse) largest = std::isfinite(lse) ? std::max(largest, std::abs(lse)) : largest;
  EXPECT_GT(largest, 8000);
  for (size_t i = 0; i < expected.lse.size(); ++i) {
    const double lse = t.lse.as<float>()[i];
    EXPECT_TRUE(lse == expected.lse[i] || std::abs(lse - expected.lse[i]) < 1e-6 * 64 * largest)
        << lse << " " << expected.lse[i];
  }
  for (size_t i = 0; i < expected.o.size(); ++i) {
    // A logit is off by up to head_dim units in its last place, and a probability by the same factor.
    const double o = t.o.as<float>()[i];
    EXPECT_LE(std::abs(o - expected.o[i]), (64 * largest * 0x1p-24 + 1e-5) * expected.scale[i] + 1e-6);
  }
}

TEST_P(AttentionRun, ANanInOneRequestReachesNoOther) {
  Case c = mixed_case();
  Problem problem(c);
  problem.reference();
  const AttentionTensors t = problem.tensors();
  // Request 1's first query row, and every key of request 0.
  auto* q = static_cast<uint16_t*>(t.q.data());
  for (int64_t i = 0; i < t.q.stride(0); ++i) q[t.q.stride(0) + i] = 0x7fc0;
  outputs(problem, 4);
  const auto is_nan_row = [&](int64_t row) {
    int nans = 0;
    for (int64_t i = 0; i < t.o.stride(0); ++i)
      nans += std::isnan(testing::get(t.o.data(), DType::bf16, row * t.o.stride(0) + i));
    return nans;
  };
  EXPECT_EQ(is_nan_row(1), t.o.stride(0));
  for (int64_t row = 0; row < t.o.shape(0); ++row) EXPECT_TRUE(row == 1 || is_nan_row(row) == 0) << row;
}

constexpr const char* kEveryHook = R"(
struct EveryHook {
  static constexpr bool use_softmax = true;
  real query_transform(P p, Vec x, int i, Row r) { return x[i] * p.gain + real(0.01) * real(r.head); }
  real key_transform(P p, Vec x, int i, Row r) { return x[i] + real(0.25) * weft::pair(x, i) * real(r.pos % 3); }
  real value_transform(P p, Vec x, int i, Row r) { return x[i] + real(0.5) * real(r.head) + real(0.001) * real(r.pos); }
  real logits_transform(P p, Score c, real s) { return s + real(0.01) * real(c.kv_pos - c.q_pos); }
  bool logits_mask(P p, Score c) { return ((c.kv_idx ^ c.qo_head) & 3) != 1; }
  real output_transform(P p, Vec x, int i, Row r) { return x[i] * real(0.5) + real(r.idx); }
};
)";
constexpr const char* kAdditive = R"(
struct Additive {
  static constexpr bool use_softmax = false;
  real logits_transform(P p, Score c, real s) { return weft::tanh(s); }
  real output_transform(P p, Vec x, int i, Row r) { return x[i] + real(1); }
};
)";

Case hook_case(bool additive, DType dtype) {
  Case c = mixed_case();
  c.q_dtype = c.kv_dtype = dtype;
  c.o_dtype = DType::fp32;
  c.variant.name = additive ? "Additive" : "EveryHook";
  c.variant.text = additive ? kAdditive : kEveryHook;
  c.variant.use_softmax = !additive;
  if (!additive) {
    c.variant.scalars = {{"gain", ScalarKind::real, {}}};
    c.scalars = {{"gain", 1.5}};
  }
  return c;
}

TEST_P(AttentionRun, EveryHookAgreesWithTheReferenceUncutAndCut) {
  for (const bool additive : {false, true}) {
    Problem problem(hook_case(additive, DType::bf16));
    problem.reference();
    outputs(problem, 1, PlanMode::no_split);
    EXPECT_EQ(problem.compare(compute(problem)), "") << additive;
    for (const auto& [mode, split] :
         {std::pair{PlanMode::fixed_split, 64}, {PlanMode::balanced, 0}, {PlanMode::paper, 0}}) {
      outputs(problem, 5, mode, split);
      EXPECT_EQ(problem.compare(compute(problem)), "") << additive << " " << to_string(mode);
    }
  }
}

// Decode takes keys and values through their hooks in blocks of all heads; lists end anywhere in a block, and what no
// row sees lies anywhere.
TEST_P(AttentionRun, HooksOfBlocksAgreeWithTheReference) {
  constexpr const char* kTurned = R"(
struct Turned {
  real key_transform(P p, Vec x, int i, Row r) {
    const int half = x.size() / 2;
    const real angle = real(r.pos) / real(1 + (i < half ? i : i - half)) + real(r.head);
    return weft::rsqrt(weft::dot(x, x) / real(x.size()) + real(0.1)) *
           (x[i] * weft::cos(angle) + weft::pair_halves(x, i) * weft::sin(angle));
  }
  real value_transform(P p, Vec x, int i, Row r) { return x[i] + real(0.25) * weft::pair(x, i) * real(r.idx % 3); }
};
)";
  for (const int group : {3, 5, 7})
    for (const Layout layout : {Layout::nhd, Layout::hnd})
      for (const bool dead : {false, true}) {
        Case c;
        c.q_dtype = c.kv_dtype = group == 5 ? DType::fp32 : DType::bf16;
        c.group = group;
        c.kv_heads = 3;
        c.head_dim_qk = group == 3 ? 64 : 40;
        c.layout = layout;
        c.page_size = 8;
        c.sinks = dead ? 4 : 0;
        c.variant.name = "Turned";
        c.variant.text = kTurned;
        c.lengths = {{1, 1}, {1, 7}, {1, 9}, {1, 15}, {1, 17}, {1, 63}, {1, 129}, {1, 300}};
        Problem problem(c);
        problem.reference();
        outputs(problem, 2);
        EXPECT_EQ(problem.compare(compute(problem)), "") << to_string(c);
        outputs(problem, 3, PlanMode::fixed_split, 64);
        EXPECT_EQ(problem.compare(compute(problem)), "") << to_string(c);
      }
}

TEST_P(AttentionRun, BuiltInVariantsAgreeWithTheReference) {
  const std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 0.0625f, 0.03f, 0.01f};
  for (Variant variant :
       {variants::logits_soft_cap(), variants::alibi(), variants::sigmoid(), variants::attention_sink()}) {
    Case c = mixed_case();
    c.variant = variant;
    for (const ScalarDecl& scalar : variant.scalars)
      if (scalar.name == "cap") c.scalars = {{"cap", 5.}};
    if (!variant.tensors.empty()) c.tensors = {{variant.tensors[0].name, TensorView(slopes.data(), DType::fp32, {6})}};
    Problem problem(c);
    problem.reference();
    outputs(problem, 3);
    EXPECT_EQ(problem.compare(compute(problem)), "") << variant.name;
  }
}

// Once a row, however its keys were cut; sinks that say nothing, and sinks that take nearly all.
TEST_P(AttentionRun, LearnedSinksActOnceARow) {
  const std::vector<float> sinks = {-INFINITY, 3.f, -2.f, 0.f, 1.f, 60.f};
  for (const Mask mask : {Mask::causal, Mask::custom}) {
    Case c = mixed_case();
    c.mask = mask;
    c.lengths.emplace_back(3, 1);  // rows that see nothing
    c.variant = variants::attention_sink();
    c.tensors = {{"sinks", TensorView(sinks.data(), DType::fp32, {6})}};
    Problem problem(c);
    problem.reference();
    for (const auto& [mode, split] :
         {std::pair{PlanMode::no_split, 0}, {PlanMode::fixed_split, 64}, {PlanMode::balanced, 0}}) {
      outputs(problem, 5, mode, split);
      EXPECT_EQ(problem.compare(compute(problem)), "") << to_string(mode);
    }
    // An empty row is the sink alone.
    const AttentionTensors t = problem.tensors();
    const int64_t empty = t.o.shape(0) - 3 - 5 - 1;
    for (int64_t head = 0; head < 6; ++head) {
      EXPECT_EQ(t.lse.as<float>()[empty * t.lse.stride(0) + head], sinks[static_cast<size_t>(head)]);
      EXPECT_EQ(testing::get(t.o.data(), DType::bf16, empty * t.o.stride(0) + head * t.o.stride(1)), 0);
    }
  }
}

TEST_P(AttentionRun, CheckModeEvaluatesEveryTileAndAgrees) {
  for (const int sinks : {0, 3}) {
    Case c = mixed_case();
    c.window = sinks == 0 ? 30 : -2;
    c.sinks = sinks;
    c.seed = 99;
    Problem problem(c);
    problem.reference();
    const Target* target = GetParam();
    ASSERT_EQ(setenv("WEFT_CHECK", "1", 1), 0);
    const AttentionKernel checked = build_on(*target, problem.spec());
    outputs(problem, 3);
    unsetenv("WEFT_CHECK");
    EXPECT_TRUE(checked.impl().check_masks);
    EXPECT_NE(&checked.impl(), &kernel(problem).impl());
    EXPECT_EQ(problem.compare(compute(problem)), "");
  }
}

TEST_P(AttentionRun, SeveralThreadsRunOneKernelOnTheirOwnWorkspaces) {
  Problem first(mixed_case());
  const std::string expected = outputs(first, 3);
  std::vector<std::thread> threads;
  std::vector<int> same(3, 0);
  for (size_t i = 0; i < same.size(); ++i)
    threads.emplace_back([&, i] {
      Problem problem(mixed_case());
      const AttentionKernel k = kernel(problem);
      WorkerTeam own(2);
      const Plan plan = k.plan(problem.input(3));
      Workspace workspace(GetParam()->device(), plan.workspace_bytes());
      for (int round = 0; round < 4; ++round) {
        problem.poison_outputs();
        const testing::Placed placed(*GetParam(), problem.tensors());
        k.run(plan, placed.tensors(), workspace, GetParam()->stream(i == 0 ? own : team_));
        placed.fetch();
        same[i] += problem.outputs() == expected;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(3, 4));
}

TEST_P(AttentionRun, AnEmptyBatchTouchesNothing) {
  Case c;
  c.lengths = {};
  Problem problem(c);
  const std::string before = problem.outputs();
  EXPECT_EQ(outputs(problem, 2), before);
}

}  // namespace
}  // namespace weft
