// A program of its own: it counts every allocation, and refuses some.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "problem.h"

namespace {
std::atomic<long long> allocations{0};
std::atomic<bool> refuse_others{false};  // allocations of threads other than the test's
thread_local bool is_test = false;

void* allocate(size_t bytes, size_t alignment) {
  ++allocations;
  if (refuse_others && !is_test) throw std::bad_alloc();
  const size_t whole = (bytes + alignment) / alignment * alignment;
  if (void* p = std::aligned_alloc(alignment, whole)) return p;
  throw std::bad_alloc();
}
}  // namespace

// Inlined on one side only, GCC takes them for a mismatched pair.
#define WEFT_NOINLINE [[gnu::noinline]]
WEFT_NOINLINE void* operator new(size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
WEFT_NOINLINE void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
WEFT_NOINLINE void operator delete(void* p) noexcept { std::free(p); }
WEFT_NOINLINE void operator delete(void* p, size_t) noexcept { std::free(p); }
WEFT_NOINLINE void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
WEFT_NOINLINE void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace weft {
namespace {

TEST(AttentionAllocation, RunsAfterTheFirstAllocateNothing) {
  for (const bool own : {false, true}) {
    testing::Case c;
    c.q_dtype = c.kv_dtype = DType::bf16;
    c.mask = Mask::causal;
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

// One worker has no memory for its scratch, when the other may have counted itself in at merges: the next run begins
// with none counted.
TEST(AttentionAllocation, ARunThatFoundNoMemoryLeavesTheWorkspaceFitForTheNext) {
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
