// A program of its own: it counts every allocation, and refuses some.
#include <gtest/gtest.h>

#include <atomic>
#include <new>

#include "problem.h"
#include "tests/support/allocations.h"

namespace weft {
namespace {

std::atomic<long long> allocations{0};
std::atomic<bool> refuse_others{false};  // allocations of threads other than the test's
thread_local bool is_test = false;

void count() {
  ++allocations;
  if (refuse_others && !is_test) throw std::bad_alloc();
}

TEST(AttentionAllocation, RunsAfterTheFirstAllocateNothing) {
  testing::before_allocation = count;
  for (const Mask mask : {Mask::causal, Mask::custom}) {
    const bool own = mask == Mask::custom;
    testing::Case c;
    c.q_dtype = c.kv_dtype = DType::bf16;
    c.mask = mask;
    c.window = 100;
    c.group = 3;
    c.kv_heads = 2;
    c.lengths = {{1, 700}, {40, 200}};
    if (own) {
      c.variant = {.name = "Own",
                   .text = "struct Own { real logits_transform(P p, Score, real s) { return s * p.gain; } };",
                   .scalars = {{.name = "gain"}}};
      c.scalars = {{"gain", 2.}};
    }
    testing::Problem problem(c);
    const AttentionKernel kernel = build(problem.spec(), Device::cpu());
    const Plan plan = kernel.plan(problem.input(3));
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    WorkerTeam team(2);
    plan.upload(workspace);
    const AttentionTensors tensors = problem.tensors();
    kernel.run(workspace, tensors, Stream::cpu(team));
    const long long before = allocations;
    for (int i = 0; i < 3; ++i) kernel.run(workspace, tensors, Stream::cpu(team));
    EXPECT_EQ(allocations, before);
  }
}

// Whose arguments are evaluated whether the message is needed or not.
TEST(AttentionAllocation, ChecksThatPassMakeNoTextOfShapes) {
  testing::before_allocation = count;
  const std::vector<float> o(100 * 10 * 10 * 8), lse(100 * 10 * 10);
  std::vector<float> o_out(10 * 10 * 8), lse_out(10 * 10);
  const auto merge = [&] {
    merge_states(TensorView(o.data(), DType::fp32, {100, 10, 10, 8}),
                 TensorView(lse.data(), DType::fp32, {100, 10, 10}), TensorView(o_out.data(), DType::fp32, {10, 10, 8}),
                 TensorView(lse_out.data(), DType::fp32, {10, 10}));
  };
  merge();
  const long long before = allocations;
  merge();
  EXPECT_EQ(allocations, before);
}

// One worker has no memory for its scratch, when the other may have counted itself in at merges: the next run begins
// with none counted.
TEST(AttentionAllocation, ARunThatFoundNoMemoryLeavesTheWorkspaceFitForTheNext) {
  testing::before_allocation = count;
  is_test = true;
  testing::Case c;
  c.lengths = {{1, 900}, {1, 500}};
  testing::Problem problem(c);
  problem.reference();
  const AttentionKernel kernel = build(problem.spec(), Device::cpu());
  const Plan plan = kernel.plan(problem.input(3, PlanMode::fixed_split, 64));
  ASSERT_GT(plan.num_partials(), 3);
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  plan.upload(workspace);
  WorkerTeam team(2);
  team.run([](int) {});
  refuse_others = true;
  EXPECT_THROW(kernel.run(workspace, problem.tensors(), Stream::cpu(team)), std::bad_alloc);
  refuse_others = false;
  problem.poison_outputs();
  kernel.run(workspace, problem.tensors(), Stream::cpu(team));
  EXPECT_EQ(problem.compare(DType::fp32), "");
}

}  // namespace
}  // namespace weft
