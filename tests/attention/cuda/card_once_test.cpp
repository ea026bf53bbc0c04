// One small call of each path, tile and loader, and of what stands beside them: for tools under which a run takes
// hundreds of times longer (tools/sanitize_card.sh). A row of the name says what differs.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "device/cuda/memory.h"
#include "even_plans.h"
#include "tests/attention/kernels/problem.h"
#include "weft/block_sparse.h"
#include "weft/merge.h"

namespace weft {
namespace {

using testing::Case;

struct Once {
  const char* name;
  Case call;
  PlanMode mode = PlanMode::balanced;
  std::optional<Loader> loader = {};
};

Case small(DType type, std::vector<std::pair<int, int>> lengths) {
  Case c;
  c.q_dtype = c.kv_dtype = c.o_dtype = type;
  c.group = 2;
  c.kv_heads = 2;
  c.head_dim_qk = c.head_dim_vo = 64;
  c.mask = Mask::causal;
  c.lengths = std::move(lengths);
  return c;
}

std::vector<Once> calls() {
  const std::vector<std::pair<int, int>> decode{{1, 200}, {1, 70}}, prefill{{20, 90}, {100, 130}};
  std::vector<Once> all{
      {"plain", small(DType::fp32, decode)},
      {"small_tiles_bf16", small(DType::bf16, decode)},
      {"small_tiles_fp16", small(DType::fp16, decode)},
      {"all_tiles_bf16", small(DType::bf16, prefill)},
      {"all_tiles_fp16", small(DType::fp16, prefill)},
      {"cp_async_fp16", small(DType::fp16, prefill), PlanMode::balanced, Loader::cp_async},
      {"elements_bf16", small(DType::bf16, decode), PlanMode::balanced, Loader::elements},
      {"cp_async_bf16", small(DType::bf16, prefill), PlanMode::balanced, Loader::cp_async},
      {"tma_bf16", small(DType::bf16, prefill), PlanMode::balanced, Loader::tma},
      {"even", small(DType::bf16, decode), PlanMode::even},
  };
  const auto add = [&](const char* name, DType type) -> Case& {
    return all.emplace_back(Once{name, small(type, decode)}).call;
  };
  add("ragged", DType::bf16).form = KvForm::ragged;
  add("padded", DType::bf16).form = KvForm::padded;
  add("page_1", DType::bf16).page_size = 1;
  add("custom_mask", DType::bf16).mask = Mask::custom;
  add("packed_mask", DType::fp32).mask = Mask::custom_packed;
  Case& int8 = add("int8", DType::bf16);
  int8.kv_dtype = DType::int8;
  int8.kv_scales = KvScales::token;
  Case& latent = add("latent", DType::bf16);
  latent.form = KvForm::latent;
  latent.kv_heads = 1;
  latent.head_dim_qk = 96;
  Case& latent_tiles = add("latent_tiles", DType::bf16);
  latent_tiles.form = KvForm::latent;
  latent_tiles.kv_heads = 1;
  latent_tiles.group = 40;
  latent_tiles.head_dim_qk = 576;
  latent_tiles.head_dim_vo = 512;
  latent_tiles.lengths = {{2, 200}, {1, 70}};
  Case& int4 = add("int4", DType::bf16);
  int4.kv_dtype = DType::int4;
  int4.kv_scales = KvScales::token_group;
  int4.kv_scale_group = 4;
  Case& fp8 = add("fp8", DType::bf16);
  fp8.kv_dtype = DType::fp8_e4m3;
  fp8.kv_scales = KvScales::head;
  return all;
}

class CardOnce : public ::testing::TestWithParam<Once> {};

TEST_P(CardOnce, AgreesWithTheReference) {
  const testing::Target& target = *testing::targets().front();
  testing::Problem problem(GetParam().call);
  const int capability = cuda::Card::at(0).capability_major();
  if (GetParam().loader == Loader::tma && capability != 9) GTEST_SKIP() << "no producer on a card of " << capability;
  problem.reference();
  AttentionSpec spec = problem.spec();
  spec.loader = GetParam().loader;
  problem.poison_outputs();
  const AttentionKernel kernel = build_on(target, spec);
  run_on(target, kernel, kernel.plan(problem.input(5, GetParam().mode)), problem.tensors());
  EXPECT_EQ(problem.compare(kernel.impl().compute, target), "");
}

INSTANTIATE_TEST_SUITE_P(Calls, CardOnce, ::testing::ValuesIn(calls()),
                         [](const auto& call) { return std::string(call.param.name); });

// Lists that name every page of a table are what the paged form attends.
TEST(CardOnceOf, BlockSparseAgreesWithTheReference) {
  const testing::Target& target = *testing::targets().front();
  testing::Problem problem(small(DType::bf16, {{1, 200}, {20, 90}}));
  problem.reference();
  problem.poison_outputs();
  AttentionSpec spec = problem.spec();
  spec.kv_form = KvForm::block_sparse;
  PlanInput input = problem.input(5);
  const BlockLists lists = blocks_from_page_table(input.pages, input.qo_indptr);
  const BlockSparse blocks = lists.view();
  input.pages = {};
  input.blocks = &blocks;
  const AttentionKernel kernel = build_on(target, spec);
  run_on(target, kernel, kernel.plan(input), problem.tensors());
  EXPECT_EQ(problem.compare(kernel.impl().compute, target), "");
}

// Two states of the same weight are their mean; of the second row one is empty.
TEST(CardOnceOf, MergeStatesWeighsThem) {
  const testing::Target& target = *testing::targets().front();
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  constexpr int kHeads = 2, kDim = 40;
  std::vector<float> states(2 * 2 * kHeads * kDim), lse{0, 0, 1, 1, 0, 0, kNone, kNone}, o(2 * kHeads * kDim), o_lse(4);
  for (size_t i = 0; i < states.size(); ++i) states[i] = static_cast<float>(i);
  AttentionTensors tensors;  // for their places
  tensors.q = TensorView(states.data(), DType::fp32, {2, 2, kHeads, kDim});
  tensors.kv.k_scale = TensorView(lse.data(), DType::fp32, {2, 2, kHeads});
  tensors.o = TensorView(o.data(), DType::fp32, {2, kHeads, kDim});
  tensors.lse = TensorView(o_lse.data(), DType::fp32, {2, kHeads});
  const testing::Placed placed(target, tensors);
  const AttentionTensors& t = placed.tensors();
  merge_states(t.q, t.kv.k_scale, t.o, t.lse);
  placed.fetch();
  for (size_t i = 0; i < o.size(); ++i)
    EXPECT_NEAR(o[i], i < o.size() / 2 ? states[i] + static_cast<float>(o.size()) / 2 : states[i], 1e-3) << i;
  EXPECT_NEAR(o_lse[0], std::log(2.f), 1e-6);
  EXPECT_EQ(o_lse[3], 1.f);
}

TEST(CardOnceOf, PlanOnDeviceMakesThePlannersPlan) {
  const testing::Target& target = *testing::targets().front();
  const AttentionKernel kernel = testing::even_kernel(target);
  testing::EvenBatch batch;
  batch.kv = {70, 0, 200};
  std::mt19937 random(3);
  const std::vector<int32_t> table = testing::random_table(batch, random);
  const testing::EvenPlans both = testing::even_plans(target, kernel, batch, batch.kv, table, table);
  EXPECT_TRUE(both.kernel == both.planner);
}

}  // namespace
}  // namespace weft
