// The latent form (MLA): one row a token is key and value of every head.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attention/cpu/leaf.h"
#include "attention/kernel.h"
#include "attention/plan/planner.h"
#include "problem.h"

namespace weft {
namespace {

using testing::Case;
using testing::Problem;
using testing::Target;

Case latent_case(int group, int head_dim_qk, int head_dim_vo) {
  Case c;
  c.form = KvForm::latent;
  c.group = group;
  c.head_dim_qk = head_dim_qk;
  c.head_dim_vo = head_dim_vo;
  c.lengths = {{1, 300}, {3, 70}, {1, 5}, {1, 0}, {2, 64}};
  return c;
}

class AttentionLatent : public ::testing::TestWithParam<const Target*> {
 protected:
  void expect_agreement(Problem& problem) {
    problem.reference();
    for (const DType compute : GetParam()->compute_types(problem.spec())) {
      AttentionSpec spec = problem.spec();
      spec.compute = compute;
      const AttentionKernel kernel = build_on(*GetParam(), spec);
      for (const auto& [mode, split, workers] :
           {std::tuple{PlanMode::balanced, 0, 3}, {PlanMode::fixed_split, 64, 2}, {PlanMode::no_split, 0, 1}}) {
        const Plan plan = kernel.plan(problem.input(workers, mode, split));
        verify(plan);
        problem.poison_outputs();
        run_on(*GetParam(), kernel, plan, problem.tensors());
        ASSERT_EQ(problem.compare(compute), "") << to_string(mode) << " " << to_string(compute);
      }
    }
  }
  WorkerTeam team_{2};
};
INSTANTIATE_TEST_SUITE_P(Targets, AttentionLatent,
                         ::testing::ValuesIn(testing::targets().begin(), testing::targets().end()),
                         [](const auto& param_info) { return param_info.param->name(); });

// Fused rows of one vector and less, of an odd number of vectors, of several blocks; rows that end inside of a vector.
TEST_P(AttentionLatent, AgreesWithTheReferenceForEveryNumberOfHeads) {
  for (const int group : {1, 3, 8, 9, 16, 33, 128})
    for (const bool one_tensor : {false, true}) {
      Case c = latent_case(group, 72, 56);
      c.mask = group % 2 == 0 ? Mask::none : Mask::causal;
      c.five_d = one_tensor;
      c.strided = group == 9;
      c.seed = static_cast<unsigned>(group);
      Problem problem(c);
      SCOPED_TRACE(to_string(c));
      expect_agreement(problem);
    }
}

TEST_P(AttentionLatent, AgreesWithTheReferenceForEveryDimTypeAndPageSize) {
  unsigned seed = 0;
  for (const auto& [qk, vo] : {std::pair{576, 512}, {576, 576}, {24, 8}, {104, 72}, {320, 256}})
    for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16}) {
      Case c = latent_case(++seed % 2 == 0 ? 7 : 12, qk, vo);
      c.q_dtype = c.kv_dtype = c.o_dtype = dtype;
      c.page_size = seed % 3 == 0 ? 1 : seed % 3 == 1 ? 16 : 64;
      c.five_d = seed % 4 < 2 || qk == vo;
      c.seed = seed;
      if (qk > 500) c.lengths = {{1, 150}, {2, 40}};
      Problem problem(c);
      SCOPED_TRACE(to_string(c));
      expect_agreement(problem);
    }
}

constexpr const char* kHooks = R"(
struct Hooks {
  real key_transform(P p, Vec x, int i, Row r) { return x[i] + real(0.25) * weft::pair(x, i) * real(r.pos % 3); }
  real value_transform(P p, Vec x, int i, Row r) { return x[i] * real(0.5) + real(0.001) * real(r.pos); }
};
)";

TEST_P(AttentionLatent, MasksVariantsAndHooksAreThoseOfOtherForms) {
  const std::vector<float> numbers(32, 0.25f);
  for (const int group : {5, 20})
    for (int kind = 0; kind < 5; ++kind) {
      Case c = latent_case(group, 48, 40);
      c.q_dtype = c.kv_dtype = DType::bf16;
      c.mask = kind == 0 ? Mask::custom : Mask::causal;
      c.window = kind == 1 ? 20 : -2;
      c.sinks = kind == 2 ? 3 : 0;
      if (kind == 3) c.variant = variants::attention_sink();
      if (kind == 3) c.tensors = {{"sinks", TensorView(numbers.data(), DType::fp32, {32})}};
      if (kind == 4) c.variant = {.name = "Hooks", .text = kHooks};
      c.five_d = kind % 2 == 0;
      Problem problem(c);
      SCOPED_TRACE(to_string(c));
      expect_agreement(problem);
    }
}

// What the paged form gives of the same rows written out as keys and values.
TEST(AttentionLatentForm, IsThePagedFormOfItsRowsWrittenOut) {
  Case c = latent_case(4, 48, 32);
  c.mask = Mask::causal;
  Problem latent(c);
  const AttentionTensors t = latent.tensors();
  const int64_t pages = t.kv.k.shape(0), page_size = t.kv.k.shape(1);
  std::vector<float> k(static_cast<size_t>(pages * page_size * 48)), v(static_cast<size_t>(pages * page_size * 32));
  for (int64_t token = 0; token < pages * page_size; ++token) {
    std::memcpy(&k[static_cast<size_t>(token * 48)], t.kv.k.as<float>() + token * 32, 32 * sizeof(float));
    std::memcpy(&k[static_cast<size_t>(token * 48 + 32)], t.kv.v.as<float>() + token * 16, 16 * sizeof(float));
    std::memcpy(&v[static_cast<size_t>(token * 32)], t.kv.k.as<float>() + token * 32, 32 * sizeof(float));
  }
  AttentionSpec spec = latent.spec();
  spec.kv_form = KvForm::paged;
  AttentionTensors written = t;
  written.kv = {TensorView(k.data(), DType::fp32, {pages, page_size, 1, 48}),
                TensorView(v.data(), DType::fp32, {pages, page_size, 1, 32})};
  const ReferenceResult expected = attention_reference(spec, latent.input(1), written), &got = latent.reference();
  EXPECT_EQ(got.o, expected.o);
  EXPECT_EQ(got.lse, expected.lse);
}

// One token of 128 heads keeps every worker busy.
TEST(AttentionLatentForm, OneRequestIsSharedAmongWorkers) {
  const AttentionKernel kernel =
      build({.head_dim_qk = 576, .head_dim_vo = 512, .kv_form = KvForm::latent}, Device::cpu());
  std::vector<int32_t> qo_indptr{0, 1}, page_indptr{0, 64}, ids(64), last{64};
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  for (const int workers : {2, 7, 16}) {
    const Plan plan = kernel.plan({.num_qo_heads = 128,
                                   .num_kv_heads = 1,
                                   .qo_indptr = qo_indptr,
                                   .pages = {64, 64, page_indptr, ids, last},
                                   .num_workers = workers});
    EXPECT_EQ(plan.num_items(), workers);
    EXPECT_LE(plan.makespan(), 1.1 * plan.lower_bound());
  }
}

// Two requests that share their first pages: read once for both, and the same output.
TEST(AttentionLatentForm, SharesPrefixesByLevels) {
  Case c = latent_case(16, 72, 64);
  c.mask = Mask::causal;
  c.lengths = {{2, 100}, {1, 90}};  // 7 and 6 pages
  Problem problem(c);
  PlanInput plain = problem.input(2);
  std::vector<int32_t> ids(plain.pages.kv_page_indices.begin(), plain.pages.kv_page_indices.end());
  std::copy_n(ids.begin(), 4, ids.begin() + 7);
  plain.pages.kv_page_indices = ids;
  const MeasuredReference expected = testing::measured_reference(problem.spec(), plain, problem.tensors());

  const std::vector<int32_t> both{0, 3}, each{0, 2, 3}, shared_indptr{0, 4}, shared_last{16}, own_indptr{0, 3, 5},
      own_ids{ids[4], ids[5], ids[6], ids[11], ids[12]}, own_last{4, 10};
  PlanInput input = plain;
  input.pages = {};
  const int64_t pool = plain.pages.num_pages;
  const std::vector<Level> levels{{both, {16, pool, shared_indptr, std::span(ids).first(4), shared_last}},
                                  {each, {16, pool, own_indptr, own_ids, own_last}}};
  input.levels = levels;
  for (const Target* target : testing::targets()) {
    const AttentionKernel kernel = build_on(*target, problem.spec());
    const Plan plan = kernel.plan(input);
    verify(plan);
    problem.poison_outputs();
    run_on(*target, kernel, plan, problem.tensors());
    const float* o = problem.tensors().o.as<float>();
    const ErrorBound error_bound(problem.spec(), testing::rounding(problem.spec(), DType::fp32));
    for (size_t i = 0; i < expected.o.size(); ++i)
      ASSERT_LE(std::abs(double{o[i]} - expected.o[i]), error_bound(100, expected, i)) << target->name() << " " << i;
  }
}

TEST(AttentionLatentForm, RefusesOtherTensors) {
  Case c = latent_case(4, 48, 32);
  Problem problem(c);
  const AttentionKernel kernel = build(problem.spec(), Device::cpu());
  const Plan plan = kernel.plan(problem.input(2));
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  const AttentionTensors good = problem.tensors();
  const auto refused = [&](const KvCache& kv, const std::string& named) {
    AttentionTensors t = good;
    t.kv = kv;
    try {
      kernel.run(plan, t, workspace);
      FAIL() << named;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(named), std::string::npos) << e.what();
    }
  };
  refused({}, "ckv");
  refused(KvCache::latent(good.kv.k), "ckv and kpe");
  refused(KvCache::latent(good.kv.v, good.kv.k), "ckv");
  refused(KvCache::latent(good.kv.k, good.kv.k), "kpe");
  refused(KvCache::latent(good.kv.k, good.kv.v.slice(0, 0, 2)), "kpe");
  kernel.run(plan, good, workspace);
}

}  // namespace
}  // namespace weft
