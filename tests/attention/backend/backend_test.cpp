// A second backend through the same public calls: what builds, plans, checks, uploads, records and merges reads no
// memory of a device itself.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>

#include "attention/kernel.h"
#include "attention/plan/planner.h"
#include "base/check.h"
#include "fake_backend.h"
#include "tests/attention/kernels/problem.h"
#include "tests/attention/kernels/states.h"
#include "tests/support/temp_folder.h"
#include "weft/levels.h"

namespace weft {
namespace {

using testing::Case;
using testing::fake_target;
using testing::Placed;
using testing::Problem;

std::optional<ErrorCode> code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return {};
}

Case small_case() {
  Case c;
  c.group = 3;
  c.kv_heads = 2;
  c.head_dim_qk = 24;
  c.head_dim_vo = 16;
  c.mask = Mask::causal;
  c.lengths = {{1, 130}, {5, 40}, {1, 0}, {3, 3}};
  return c;
}

TEST(Backend, AnswersRightThroughThePublicCalls) {
  unsigned seed = 0;
  for (const KvForm form : {KvForm::paged, KvForm::ragged, KvForm::padded})
    for (const Layout layout : {Layout::nhd, Layout::hnd})
      for (const DType type : {DType::fp32, DType::fp16, DType::bf16})
        for (const auto& [mode, split, workers] :
             {std::tuple{PlanMode::balanced, 0, 4}, {PlanMode::fixed_split, 32, 2}, {PlanMode::paper, 0, 3}}) {
          Case c = small_case();
          c.form = form;
          c.layout = layout;
          c.q_dtype = c.kv_dtype = c.o_dtype = type;
          c.window = seed % 2 == 0 ? 20 : -2;
          c.strided = seed % 3 == 0;
          c.sinks = seed % 5 == 4 ? 4 : 0;
          c.seed = ++seed;
          SCOPED_TRACE(to_string(c) + std::string(to_string(mode)));
          Problem problem(c);
          problem.reference();
          const AttentionKernel kernel = build_on(fake_target(), problem.spec());
          const Plan plan = kernel.plan(problem.input(workers, mode, split));
          verify(plan);
          problem.poison_outputs();
          run_on(fake_target(), kernel, plan, problem.tensors());
          ASSERT_EQ(problem.compare(DType::fp32), "");
        }
}

TEST(Backend, APlanInItsWorkspaceRunsAgainAndAfterAnUpdate) {
  Case c = small_case();
  Problem problem(c), other([&] {
    Case longer = c;
    longer.lengths = {{1, 131}, {5, 45}, {1, 1}, {3, 9}};
    return longer;
  }());
  const AttentionKernel kernel = build_on(fake_target(), problem.spec());
  PlanBounds bounds{.max_requests = 4,
                    .max_rows = 16,
                    .max_pages = 40,
                    .max_kv_len = 200,
                    .page_size = 16,
                    .num_qo_heads = 6,
                    .num_kv_heads = 2,
                    .workers = 3};
  Workspace workspace(Device::cuda(), kernel.workspace_bytes(bounds));
  for (Problem* each : {&problem, &other, &problem}) {
    each->reference();
    PlanInput input = each->input(3);
    input.bounds = &bounds;
    kernel.plan(input).upload(workspace);
    for (int round = 0; round < 2; ++round) {
      each->poison_outputs();
      const Placed placed(fake_target(), each->tensors());
      kernel.run(workspace, placed.tensors());
      placed.fetch();
      EXPECT_EQ(each->compare(DType::fp32), "");
    }
  }
}

TEST(Backend, LevelsMerge) { testing::expect_levels_merge(fake_target(), small_case(), 1e-4); }

TEST(Backend, AttendsAndMergesStates) { testing::expect_parts_merge(fake_target(), 16); }

TEST(Backend, MergesAsManyStatesARowAsAnIndptrSays) {
  testing::States states = testing::random_states(4, 5, 3, 24, DType::bf16, 9);
  for (const bool by_indptr : {false, true}) testing::expect_merged(fake_target(), states, DType::fp16, by_indptr);
  testing::States list = testing::random_states(3, 1, 2, 8, DType::fp32, 10);
  const std::vector<int32_t> indptr{0, 2, 2, 3};
  const testing::Merged merged = testing::merge_list_on(fake_target(), list, indptr, DType::fp32);
  EXPECT_EQ(merged.lse[2], -INFINITY);
  for (size_t h : {0, 1}) {
    const double both = std::log(std::exp(double{list.lse[h]}) + std::exp(double{list.lse[2 + h]}));
    EXPECT_NEAR(double{merged.lse[h]}, both, 1e-5);
    EXPECT_EQ(merged.lse[4 + h], list.lse[4 + h]);
  }
}

TEST(Backend, NumbersTheWorkersOfItsPlans) {
  Problem problem(small_case());
  const AttentionKernel fake = build_on(fake_target(), problem.spec()), cpu = build(problem.spec(), Device::cpu());
  EXPECT_EQ(fake.plan(problem.input(0)).num_workers(), 3);
  for (const AttentionKernel* kernel : {&fake, &cpu})
    EXPECT_EQ(kernel->plan(problem.input(0)).num_workers(), kernel->impl().backend->num_workers({}));
}

TEST(Backend, RefusesWhatLiesElsewhereOrWasNotUploaded) {
  Problem problem(small_case());
  const AttentionKernel kernel = build_on(fake_target(), problem.spec());
  const Plan plan = kernel.plan(problem.input(2));
  Workspace workspace(Device::cuda(), plan.workspace_bytes()), of_host(Device::cpu(), plan.workspace_bytes());
  const Placed placed(fake_target(), problem.tensors());
  EXPECT_EQ(code_of([&] { kernel.run(workspace, placed.tensors()); }), ErrorCode::plan_mismatch);
  EXPECT_EQ(code_of([&] { kernel.run(plan, problem.tensors(), workspace); }), ErrorCode::invalid_device);
  EXPECT_EQ(code_of([&] { kernel.run(plan, placed.tensors(), of_host); }), ErrorCode::invalid_device);
  WorkerTeam team(1);
  EXPECT_EQ(code_of([&] { kernel.run(plan, placed.tensors(), workspace, Stream::cpu(team)); }),
            ErrorCode::invalid_device);
  EXPECT_EQ(code_of([&] { build(problem.spec(), Device::cuda(1)); }), ErrorCode::unsupported);
  AttentionSpec capped = problem.spec();
  capped.variant = variants::logits_soft_cap();
  EXPECT_EQ(code_of([&] { build_on(fake_target(), capped); }), ErrorCode::unsupported);
}

// What the host does not read where it lies is fetched to be checked.
TEST(Backend, RefusesACustomMaskThatEndsTooSoon) {
  for (const Mask mask : {Mask::custom, Mask::custom_packed}) {
    Case c = small_case();
    c.mask = mask;
    Problem problem(c);
    const AttentionKernel kernel = build_on(fake_target(), problem.spec());
    const Plan plan = kernel.plan(problem.input(2));
    AttentionTensors tensors = problem.tensors();
    TensorView& bytes = tensors.tensors[0].value;
    bytes = bytes.slice(0, 0, bytes.shape(0) - 1);
    EXPECT_EQ(code_of([&] { run_on(fake_target(), kernel, plan, tensors); }), ErrorCode::invalid_shape);
  }
}

// The recording is read back through the backend.
TEST(BackendDeathTest, RecordsACall) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // whether calls are recorded is asked once a process
  const testing::TempFolder own;
  setenv("WEFT_RECORD", own.path().c_str(), 0);  // the process that records begins again, with its parent's folder
  const std::filesystem::path folder = std::getenv("WEFT_RECORD");
  const auto record = [&] {
    Problem problem(small_case());
    const AttentionKernel kernel = build_on(fake_target(), problem.spec());
    run_on(fake_target(), kernel, kernel.plan(problem.input(2)), problem.tensors());
    exit(0);
  };
  EXPECT_EXIT(record(), ::testing::ExitedWithCode(0), "");
  const auto call = *std::filesystem::directory_iterator(folder);
  for (const char* file : {"call.json", "plan.bin", "q.bin", "k.bin", "v.bin", "o.bin", "lse.bin"})
    EXPECT_TRUE(std::filesystem::exists(call.path() / file)) << file;
  EXPECT_EQ(std::filesystem::file_size(call.path() / "q.bin"), 10u * 6 * 24 * 4);
  unsetenv("WEFT_RECORD");
}

// What the tests rest on: the host cannot read such memory.
TEST(BackendDeathTest, HostCodeThatReadsItFaults) {
  Problem problem(small_case());
  const Placed placed(fake_target(), problem.tensors());
  EXPECT_DEATH(std::fprintf(stderr, "%f", static_cast<double>(*placed.tensors().q.as<volatile float>())), "");
}

}  // namespace
}  // namespace weft
