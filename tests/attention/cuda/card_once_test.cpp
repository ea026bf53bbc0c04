// One small call of each path, tile and loader, and of what stands beside them: for tools under which a run takes hundreds of
// times longer (tools/sanitize_card.sh). A row of the name says what differs.
#include <gtest/gtest.h>

#include <string>

#include "tests/attention/kernels/problem.h"

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
      {"elements_bf16", small(DType::bf16, decode), PlanMode::balanced, Loader::elements},
      {"cp_async_bf16", small(DType::bf16, prefill), PlanMode::balanced, Loader::cp_async},
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
  return all;
}

class CardOnce : public ::testing::TestWithParam<Once> {};

TEST_P(CardOnce, AgreesWithTheReference) {
  const testing::Target& target = *testing::targets().front();
  testing::Problem problem(GetParam().call);
  problem.reference();
  AttentionSpec spec = problem.spec();
  spec.loader = GetParam().loader;
  problem.poison_outputs();
  const AttentionKernel kernel = build_on(target, spec);
  run_on(target, kernel, kernel.plan(problem.input(5, GetParam().mode)), problem.tensors());
  EXPECT_EQ(problem.compare(target.compute_types(spec).back(), target), "");
}

INSTANTIATE_TEST_SUITE_P(Calls, CardOnce, ::testing::ValuesIn(calls()),
                         [](const auto& call) { return std::string(call.param.name); });

}  // namespace
}  // namespace weft
