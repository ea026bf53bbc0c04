// Even plans that a kernel makes in the host machine, from lengths that lie there: the bytes that the planner uploads,
// and what is clamped. And what a launch that is captured asks of its plan.
#include <gtest/gtest.h>

#include <utility>

#include "even_plans.h"
#include "host_target.h"
#include "tests/attention/kernels/problem.h"

namespace weft {
namespace {

using testing::even_kernel;
using testing::EvenBatch;
using testing::host_machine;
using testing::OnTarget;

// For even_kernel.
testing::Case one_request() {
  testing::Case c;
  c.head_dim_qk = 16;
  c.head_dim_vo = 24;
  c.mask = Mask::causal;
  c.lengths = {{1, 40}};
  return c;
}

class HostMachineEven : public ::testing::Test {
 protected:
  HostMachineEven() : flag_(host_machine(), {0}) { testing::clamped_flag = static_cast<unsigned*>(flag_.data()); }
  ~HostMachineEven() override { testing::clamped_flag = nullptr; }
  bool clamped() { return std::exchange(*static_cast<unsigned*>(flag_.data()), 0u) != 0; }

 private:
  OnTarget flag_;
};

TEST_F(HostMachineEven, MakesThePlanThatThePlannerUploads) {
  testing::expect_even_plans_of_the_planner(host_machine(), [&] { ASSERT_FALSE(clamped()); });
}

TEST_F(HostMachineEven, ClampsWhatIsOutOfRangeAndRaisesTheFlag) {
  testing::expect_clamped_even_plans(host_machine(), [&] { return clamped(); });
}

TEST_F(HostMachineEven, RefusesWhatBoundsAndBatchDoNotAgreeIn) {
  const AttentionKernel kernel = even_kernel(host_machine());
  EvenBatch b;
  b.kv = {10, 20};
  const OnTarget kv_len(host_machine(), b.kv), table(host_machine(), std::vector<int32_t>(80, 0));
  const auto refused = [&](ErrorCode code, const char* says, auto change) {
    PlanBounds bounds = b.bounds();
    DeviceBatch batch = b.on_device(kv_len.view({2}), table.view({2, 40}));
    Workspace workspace(Device::cuda(), kernel.workspace_bytes(bounds));
    change(batch, bounds, workspace);
    try {
      kernel.plan_on_device(batch, bounds, workspace);
      ADD_FAILURE() << says << ": nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  refused(ErrorCode::invalid_argument, "bounds.mode = balanced",
          [](auto&, auto& bounds, auto&) { bounds.mode = PlanMode::balanced; });
  refused(ErrorCode::invalid_argument, "raise it to 76", [](auto&, auto& bounds, auto&) { bounds.max_pages = 75; });
  refused(ErrorCode::invalid_argument, "beyond bounds.max_requests = 1",
          [](auto&, auto& bounds, auto&) { bounds.max_requests = 1; });
  refused(ErrorCode::invalid_argument, "num_workers = 6", [](auto& batch, auto&, auto&) { batch.num_workers = 6; });
  refused(ErrorCode::workspace_too_small, "ask kernel.workspace_bytes(bounds)",
          [](auto&, auto&, auto& workspace) { workspace = Workspace(Device::cuda(), 4096); });
  refused(ErrorCode::invalid_device, "kv_len: lies on cpu",
          [&](auto& batch, auto&, auto&) { batch.kv_len = TensorView(b.kv.data(), DType::int32, {2}, Device::cpu()); });
  refused(ErrorCode::invalid_dtype, "page_table: is fp32", [&](auto& batch, auto&, auto&) {
    batch.page_table = TensorView(table.data(), DType::fp32, {2, 40}, Device::cuda());
  });
  refused(ErrorCode::invalid_shape, "page_table: has 1 rows; kv_len has 2", [&](auto& batch, auto&, auto&) {
    batch.page_table = table.view({1, 40});
  });
}

// A part of a request may lie in the gap between its first keys and its last ones.
TEST(HostMachineEvenRuns, SumPartsThatSeeNothing) {
  testing::Case c;
  c.head_dim_qk = 16;
  c.head_dim_vo = 24;
  c.group = 2;
  c.sinks = 4;
  c.lengths = {{1, 400}, {1, 90}, {1, 0}};
  testing::Problem problem(c);
  problem.reference();
  const AttentionKernel kernel = build_on(host_machine(), problem.spec());
  const Plan plan = kernel.plan(problem.input(9, PlanMode::even));
  ASSERT_GE(plan.num_partials(), 4);
  problem.poison_outputs();
  run_on(host_machine(), kernel, plan, problem.tensors());
  EXPECT_EQ(problem.compare(DType::fp32), "");
}

TEST(HostMachineRows, AreWhereThePlanSays) { testing::expect_rows_where_the_plan_says(host_machine()); }

TEST(HostMachineLoader, RefusesWhatANamedOneCannotServe) {
  AttentionSpec spec{.q_dtype = DType::bf16, .kv_dtype = DType::bf16, .head_dim_qk = 16, .head_dim_vo = 24};
  const auto build = [&] { return build_on(host_machine(), spec); };
  spec.loader = Loader::elements;
  EXPECT_EQ(build().impl().compute, DType::fp32);
  spec.loader = Loader::cp_async;
  spec.page_size = 16;
  const AttentionKernel kernel = build();
  EXPECT_EQ(kernel.impl().compute, DType::bf16);
  testing::Case c = one_request();
  c.q_dtype = c.kv_dtype = DType::bf16;
  c.mask = Mask::none;
  testing::Problem problem(c);
  problem.reference();
  problem.poison_outputs();
  run_on(host_machine(), kernel, kernel.plan(problem.input(2)), problem.tensors());
  EXPECT_EQ(problem.compare(DType::bf16), "");
  c.page_size = 8;
  testing::Problem other_pages(c);
  EXPECT_THROW((void)kernel.plan(other_pages.input(2)), Error);
  const testing::Placed placed(host_machine(), problem.tensors());
  AttentionTensors tensors = placed.tensors();
  tensors.q = TensorView(static_cast<char*>(tensors.q.data()) + 2, DType::bf16, {1, 1, 16}, Device::cuda());
  const Plan plan = kernel.plan(problem.input(2));
  Workspace workspace(Device::cuda(), plan.workspace_bytes());
  plan.upload(workspace);
  try {
    kernel.run(workspace, tensors);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_stride);
    EXPECT_NE(std::string(error.what()).find("which loader = cp_async needs"), std::string::npos) << error.what();
  }
  spec.kv_dtype = DType::fp32;
  EXPECT_THROW(build(), Error);
}

// StreamOrder (device/cuda) makes one stream wait for another; here, that every work on a workspace asks it.
TEST(HostMachineOrder, HasEveryWorkOnAWorkspace) {
  static std::string order;
  order.clear();
  testing::Problem problem(one_request());
  const AttentionKernel kernel = even_kernel(host_machine());
  const testing::Placed placed(host_machine(), problem.tensors());
  const Plan plan = kernel.plan(problem.input(2));
  Workspace workspace(Device::cuda(), plan.workspace_bytes());
  const OnTarget positions(host_machine(), std::vector<int32_t>(1)), places(host_machine(), std::vector<int32_t>(2));
  const auto stream = [](uintptr_t handle) { return Stream::cuda(reinterpret_cast<void*>(handle)); };
  testing::watch_order = [](Stream of, bool begins) {
    order += (begins ? "(" : ")") + std::to_string(reinterpret_cast<uintptr_t>(of.handle()));
  };
  testing::defer_launch = [](std::function<void()>) { return !(order += "L").empty(); };
  plan.upload(workspace, stream(1));
  kernel.run(workspace, placed.tensors(), stream(2));
  kernel.locate_rows(workspace, positions.view({1}), places.view({1, 2}), stream(3));
  testing::watch_order = nullptr;
  testing::defer_launch = nullptr;
  EXPECT_EQ(order, "(1)1(2L)2(3L)3");
}

TEST(HostMachineCapture, WantsAPlanThatWasMadeWithBounds) {
  testing::Problem problem(one_request());
  const AttentionKernel kernel = even_kernel(host_machine());
  const testing::Placed placed(host_machine(), problem.tensors());
  PlanInput input = problem.input(2);
  const Plan without = kernel.plan(input);
  const PlanBounds bounds{.max_requests = 1,
                          .max_rows = 1,
                          .max_pages = 3,
                          .max_kv_len = 48,
                          .page_size = 16,
                          .num_qo_heads = 1,
                          .num_kv_heads = 1,
                          .workers = 2};
  input.bounds = &bounds;
  const Plan with = kernel.plan(input);
  Workspace workspace(Device::cuda(), kernel.workspace_bytes(bounds) + without.workspace_bytes());
  static int launches = 0;
  testing::defer_launch = [](std::function<void()>) { return ++launches > 0; };
  testing::is_capturing = [] { return true; };
  without.upload(workspace);
  try {
    kernel.run(workspace, placed.tensors());
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("the plan was made without bounds"), std::string::npos) << error.what();
  }
  EXPECT_EQ(launches, 0);
  with.upload(workspace);
  kernel.run(workspace, placed.tensors());
  EXPECT_EQ(launches, 1);
  testing::defer_launch = nullptr;
  testing::is_capturing = nullptr;
}

}  // namespace
}  // namespace weft
