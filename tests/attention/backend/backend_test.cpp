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

TEST(Backend, LevelsMerge) {
  // Two requests share their first two pages.
  Case c = small_case();
  c.lengths = {{2, 100}, {3, 60}};
  Problem problem(c);
  PlanInput input = problem.input(3);
  std::vector<int32_t> ids(input.pages.kv_page_indices.begin(), input.pages.kv_page_indices.end());
  ids[7] = ids[0];
  ids[8] = ids[1];
  input.pages.kv_page_indices = ids;
  const ReferenceResult flat = attention_reference(problem.spec(), input, problem.tensors());
  const std::vector<int32_t> shared_rows{0, 5}, own_rows{0, 2, 5}, shared_indptr{0, 2}, own_indptr{0, 5, 7};
  const std::vector<int32_t> shared_last{16}, own_last{4, 12};
  std::vector<int32_t> own_ids(ids.begin() + 2, ids.begin() + 7);
  own_ids.insert(own_ids.end(), ids.begin() + 9, ids.begin() + 11);
  const PageTableView table = input.pages;
  const Level levels[] = {{shared_rows, {16, table.num_pages, shared_indptr, std::span(ids).first(2), shared_last}},
                          {own_rows, {16, table.num_pages, own_indptr, own_ids, own_last}}};
  input.pages = {};
  input.levels = levels;
  const AttentionKernel kernel = build_on(fake_target(), problem.spec());
  const Plan plan = kernel.plan(input);
  ASSERT_GT(plan.num_partials(), 0);
  run_on(fake_target(), kernel, plan, problem.tensors());
  const TensorView o = problem.tensors().o;
  for (size_t i = 0; i < flat.o.size(); ++i) EXPECT_NEAR(o.as<float>()[i], flat.o[i], 1e-4) << i;
}

TEST(Backend, AttendsAndMergesStates) {
  constexpr int kRows = 3, kHeads = 2, kDim = 16, kKeys = 50;
  std::vector<float> q(kRows * kHeads * kDim), k(kKeys * kHeads * kDim), v(k.size()), whole(q.size());
  for (size_t i = 0; i < k.size(); ++i) {
    k[i] = std::sin(static_cast<float>(i));
    v[i] = std::cos(static_cast<float>(i));
    if (i < q.size()) q[i] = std::sin(static_cast<float>(7 * i));
  }
  std::vector<float> parts(2 * q.size()), lse(2 * kRows * kHeads), whole_lse(kRows * kHeads), o(q.size()),
      o_lse(whole_lse.size());
  const AttentionSpec spec{.head_dim_qk = kDim, .head_dim_vo = kDim, .kv_form = KvForm::ragged};
  const auto attend_part = [&](int begin, int end, float* out, float* out_lse) {
    AttentionTensors tensors;
    tensors.q = TensorView(q.data(), DType::fp32, {kRows, kHeads, kDim});
    tensors.kv = {TensorView(k.data() + begin * kHeads * kDim, DType::fp32, {end - begin, kHeads, kDim}),
                  TensorView(v.data() + begin * kHeads * kDim, DType::fp32, {end - begin, kHeads, kDim})};
    tensors.o = TensorView(out, DType::fp32, {kRows, kHeads, kDim});
    tensors.lse = TensorView(out_lse, DType::fp32, {kRows, kHeads});
    const Placed placed(fake_target(), tensors);
    const AttentionTensors& t = placed.tensors();
    attend(spec, t.q, t.kv.k, t.kv.v, t.o, t.lse);
    placed.fetch();
  };
  attend_part(0, kKeys, whole.data(), whole_lse.data());
  attend_part(0, 20, parts.data(), lse.data());
  attend_part(20, kKeys, parts.data() + q.size(), lse.data() + kRows * kHeads);

  AttentionTensors states;  // of merge_states, for their places
  states.q = TensorView(parts.data(), DType::fp32, {2, kRows, kHeads, kDim});
  states.kv.k_scale = TensorView(lse.data(), DType::fp32, {2, kRows, kHeads});
  states.o = TensorView(o.data(), DType::fp32, {kRows, kHeads, kDim});
  states.lse = TensorView(o_lse.data(), DType::fp32, {kRows, kHeads});
  const Placed placed(fake_target(), states);
  const AttentionTensors& t = placed.tensors();
  merge_states(t.q, t.kv.k_scale, t.o, t.lse);
  placed.fetch();
  for (size_t i = 0; i < o.size(); ++i) EXPECT_NEAR(o[i], whole[i], 1e-5);
  for (size_t i = 0; i < o_lse.size(); ++i) EXPECT_NEAR(o_lse[i], whole_lse[i], 1e-5);
}

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
