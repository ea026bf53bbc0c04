// Even plans that a kernel makes in the host machine, from lengths that lie there: the bytes that the planner uploads, and what
// is clamped. And what a launch that is captured asks of its plan.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "attention/kernel.h"
#include "attention/plan/planner.h"
#include "host_runtime.h"
#include "tests/attention/kernels/problem.h"

namespace weft {
namespace {

using testing::host_machine;

AttentionKernel kernel_of(bool window) {
  AttentionSpec spec{.head_dim_qk = 16, .head_dim_vo = 24, .mask = Mask::causal};
  spec.sliding_window = window;
  return build_on(host_machine(), spec);
}

// For that kernel.
testing::Case one_request() {
  testing::Case c;
  c.head_dim_qk = 16;
  c.head_dim_vo = 24;
  c.mask = Mask::causal;
  c.lengths = {{1, 40}};
  return c;
}

// Numbers on the machine, as long as this lives.
struct OnMachine {
  explicit OnMachine(std::vector<int32_t> numbers) : host(std::move(numbers)) {
    placed = host_machine().place(host.data(), host.size() * sizeof(int32_t));
  }
  ~OnMachine() { host_machine().release(placed, 0); }
  OnMachine(const OnMachine&) = delete;
  OnMachine& operator=(const OnMachine&) = delete;
  std::vector<int32_t> host;
  void* placed;
};

struct Batch {
  std::vector<int> kv;
  int qo_len = 1, workers = 5, page_size = 16, pages_of_request = 40, num_pages = 300;
  PlanBounds bounds() const {
    const auto requests = static_cast<int>(kv.size());
    return {.max_requests = requests,
            .max_rows = requests * qo_len,
            .max_pages = requests * int64_t{pages_of_request},
            .max_kv_len = 600,
            .page_size = page_size,
            .num_qo_heads = 6,
            .num_kv_heads = 3,
            .workers = workers,
            .mode = PlanMode::even};
  }
};

// The bytes of the batch's plan: of the planner, given the lengths and ids that are right, and of the kernel, given `kv` and
// `table`.
struct Both {
  std::string planner, kernel;
};
Both plans_of(const AttentionKernel& kernel, const Batch& b, const std::vector<int32_t>& right_kv,
              const std::vector<int32_t>& right_table, std::vector<int32_t> table, std::vector<ScalarArg> scalars) {
  const PlanBounds bounds = b.bounds();
  std::vector<int32_t> qo_indptr{0}, page_indptr{0}, ids, last;
  for (size_t r = 0; r < right_kv.size(); ++r) {
    const int pages = (right_kv[r] + b.page_size - 1) / b.page_size;
    qo_indptr.push_back(qo_indptr.back() + b.qo_len);
    page_indptr.push_back(page_indptr.back() + pages);
    for (int i = 0; i < pages; ++i)
      ids.push_back(right_table[r * static_cast<size_t>(b.pages_of_request) + static_cast<size_t>(i)]);
    last.push_back(right_kv[r] == 0 ? 0 : right_kv[r] - (pages - 1) * b.page_size);
  }
  PlanInput input{.num_qo_heads = 6, .num_kv_heads = 3, .qo_indptr = qo_indptr};
  input.pages = {b.page_size, b.num_pages, page_indptr, ids, last};
  input.num_workers = b.workers;
  input.mode = PlanMode::even;
  input.bounds = &bounds;
  input.scalars = scalars;
  const Plan plan = kernel.plan(input);
  verify(plan);
  Workspace uploaded(Device::cuda(), plan.workspace_bytes()), made(Device::cuda(), plan.workspace_bytes());
  host_machine().poison(made);
  plan.upload(uploaded);
  const OnMachine kv_len(b.kv), page_table(std::move(table));
  const auto requests = static_cast<int64_t>(b.kv.size());
  kernel.plan_on_device(
      {.kv_len = TensorView(kv_len.placed, DType::int32, {requests}, Device::cuda()),
       .page_table = TensorView(page_table.placed, DType::int32, {requests, b.pages_of_request}, Device::cuda()),
       .num_pages = b.num_pages,
       .qo_len = b.qo_len,
       .num_workers = b.workers,
       .scalars = scalars},
      bounds, made);
  const size_t bytes = plan.impl().bytes.size();
  return {std::string(static_cast<const char*>(uploaded.data()), bytes),
          std::string(static_cast<const char*>(made.data()), bytes)};
}

std::vector<int32_t> random_table(const Batch& b, std::mt19937& random) {
  std::vector<int32_t> table(b.kv.size() * static_cast<size_t>(b.pages_of_request));
  for (int32_t& id : table) id = static_cast<int32_t>(random() % static_cast<unsigned>(b.num_pages));
  return table;
}

class HostMachineEven : public ::testing::Test {
 protected:
  HostMachineEven() : flag_({0}) { testing::clamped_flag = static_cast<unsigned*>(flag_.placed); }
  ~HostMachineEven() override { testing::clamped_flag = nullptr; }
  unsigned flag() const { return *static_cast<const unsigned*>(flag_.placed); }
  void lower() { *static_cast<unsigned*>(flag_.placed) = 0; }

 private:
  OnMachine flag_;
};

TEST_F(HostMachineEven, MakesThePlanThatThePlannerUploads) {
  std::mt19937 random(11);
  for (const bool window : {false, true}) {
    const AttentionKernel kernel = kernel_of(window);
    for (int round = 0; round < 8; ++round) {
      Batch b;
      const std::vector<int> requests{1, 2, 7, 40, 3, 0, 1, 90};
      b.workers = std::vector<int>{1, 3, 5, 9, 33, 2, 70, 64}[static_cast<size_t>(round)];
      b.qo_len = round % 3 + 1;
      for (int r = 0; r < requests[static_cast<size_t>(round)]; ++r)
        b.kv.push_back(random() % 5 == 0 ? 0 : b.qo_len + static_cast<int>(random() % 590));
      const std::vector<int32_t> table = random_table(b, random);
      const Both both = plans_of(kernel, b, b.kv, table, table,
                                 window ? std::vector<ScalarArg>{{"window_left", 100}} : std::vector<ScalarArg>{});
      ASSERT_TRUE(both.kernel == both.planner) << "round " << round;
      ASSERT_EQ(flag(), 0u);
    }
  }
}

TEST_F(HostMachineEven, ClampsWhatIsOutOfRangeAndRaisesTheFlag) {
  std::mt19937 random(12);
  const AttentionKernel kernel = kernel_of(false);
  Batch b;
  b.kv = {-5, 100, 601, 20};
  const std::vector<int> right{0, 100, 600, 20};
  const std::vector<int32_t> table = random_table(b, random);
  EXPECT_TRUE([&] {
    const Both both = plans_of(kernel, b, right, table, table, {});
    return both.kernel == both.planner;
  }());
  EXPECT_EQ(flag(), 1u);
  lower();
  b.kv = right;
  std::vector<int32_t> wrong = table, clamped = table;
  wrong[40] = -1;
  clamped[40] = 0;
  wrong[81] = b.num_pages;
  clamped[81] = b.num_pages - 1;
  wrong[39] = 100000;  // of a request without keys: nobody reads it
  const Both both = plans_of(kernel, b, right, clamped, wrong, {});
  EXPECT_TRUE(both.kernel == both.planner);
  EXPECT_EQ(flag(), 1u);
}

TEST_F(HostMachineEven, RefusesWhatBoundsAndBatchDoNotAgreeIn) {
  const AttentionKernel kernel = kernel_of(false);
  Batch b;
  b.kv = {10, 20};
  const OnMachine kv_len(b.kv), table(std::vector<int32_t>(80, 0));
  const auto refused = [&](ErrorCode code, const char* says, auto change) {
    PlanBounds bounds = b.bounds();
    DeviceBatch batch{.kv_len = TensorView(kv_len.placed, DType::int32, {2}, Device::cuda()),
                      .page_table = TensorView(table.placed, DType::int32, {2, 40}, Device::cuda()),
                      .num_pages = 300,
                      .num_workers = 5};
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
    batch.page_table = TensorView(table.placed, DType::fp32, {2, 40}, Device::cuda());
  });
  refused(ErrorCode::invalid_shape, "page_table: has 1 rows; kv_len has 2", [&](auto& batch, auto&, auto&) {
    batch.page_table = TensorView(table.placed, DType::int32, {1, 40}, Device::cuda());
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

TEST(HostMachineRows, AreWhereThePlanSays) {
  const AttentionKernel kernel = kernel_of(false);
  // Two levels: requests 0 and 1 share 32 tokens, and request 2 has more queries than keys of its own.
  const std::vector<int32_t> shared_rows{0, 3, 5}, shared_pages{0, 2, 2}, shared_ids{7, 8}, shared_last{16, 0};
  const std::vector<int32_t> own_rows{0, 1, 3, 5}, own_pages{0, 1, 3, 4}, own_ids{1, 2, 3, 4}, own_last{5, 1, 1};
  const Level levels[] = {{shared_rows, {16, 9, shared_pages, shared_ids, shared_last}},
                          {own_rows, {16, 9, own_pages, own_ids, own_last}}};
  PlanInput input{.num_qo_heads = 6, .num_kv_heads = 3, .num_workers = 2, .levels = levels};
  const Plan plan = kernel.plan(input);
  Workspace workspace(Device::cuda(), plan.workspace_bytes());
  plan.upload(workspace);
  const OnMachine positions(std::vector<int32_t>(5, -1)), places(std::vector<int32_t>(10, -1));
  kernel.locate_rows(workspace, TensorView(positions.placed, DType::int32, {5}, Device::cuda()),
                     TensorView(places.placed, DType::int32, {5, 2}, Device::cuda()));
  const auto* at = static_cast<const int32_t*>(positions.placed);
  EXPECT_EQ(std::vector(at, at + 5), (std::vector<int32_t>{36, 47, 48, -1, 0}));
  at = static_cast<const int32_t*>(places.placed);
  EXPECT_EQ(std::vector(at, at + 10), (std::vector<int32_t>{1, 4, 2, 15, 3, 0, 0, 0, 4, 0}));
  EXPECT_THROW(kernel.locate_rows(workspace, TensorView(positions.placed, DType::int32, {4}, Device::cuda()),
                                  TensorView(places.placed, DType::int32, {5, 2}, Device::cuda())),
               Error);
}

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
  spec.kv_dtype = DType::fp8_e4m3;
  EXPECT_THROW(build(), Error);
}

// StreamOrder (device/cuda) makes one stream wait for another; here, that every work on a workspace asks it.
TEST(HostMachineOrder, HasEveryWorkOnAWorkspace) {
  static std::string order;
  order.clear();
  testing::Problem problem(one_request());
  const AttentionKernel kernel = kernel_of(false);
  const testing::Placed placed(host_machine(), problem.tensors());
  const Plan plan = kernel.plan(problem.input(2));
  Workspace workspace(Device::cuda(), plan.workspace_bytes());
  const OnMachine positions(std::vector<int32_t>(1)), places(std::vector<int32_t>(2));
  const auto stream = [](uintptr_t handle) { return Stream::cuda(reinterpret_cast<void*>(handle)); };
  testing::watch_order = [](Stream of, bool begins) {
    order += (begins ? "(" : ")") + std::to_string(reinterpret_cast<uintptr_t>(of.handle()));
  };
  testing::defer_launch = [](std::function<void()>) { return !(order += "L").empty(); };
  plan.upload(workspace, stream(1));
  kernel.run(workspace, placed.tensors(), stream(2));
  kernel.locate_rows(workspace, TensorView(positions.placed, DType::int32, {1}, Device::cuda()),
                     TensorView(places.placed, DType::int32, {1, 2}, Device::cuda()), stream(3));
  testing::watch_order = nullptr;
  testing::defer_launch = nullptr;
  EXPECT_EQ(order, "(1)1(2L)2(3L)3");
}

TEST(HostMachineCapture, WantsAPlanThatWasMadeWithBounds) {
  testing::Problem problem(one_request());
  const AttentionKernel kernel = kernel_of(false);
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
