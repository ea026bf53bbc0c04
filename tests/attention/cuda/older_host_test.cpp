// Attention's products in the host machine with the text's forms for sm_75: two of half the depth, copies that land at
// once. fp16 alone; what the plain path does is the same in every form.
#include <gtest/gtest.h>

#include "attention/kernel.h"
#include "attention/plan/planner.h"
#include "few_bits.h"
#include "host_target.h"
#include "tests/attention/kernels/problem.h"

namespace weft {
namespace {

using attention::TileKind;
using testing::Case;
using testing::host_machine;
using testing::Problem;
using testing::SpecialNumbers;

Case halves(KvForm form, int group, int dim_qk, int dim_vo, std::vector<std::pair<int, int>> lengths) {
  Case c;
  c.q_dtype = c.kv_dtype = c.o_dtype = DType::fp16;
  c.form = form;
  c.group = group;
  c.kv_heads = 2;
  c.head_dim_qk = dim_qk;
  c.head_dim_vo = dim_vo;
  c.lengths = std::move(lengths);
  return c;
}

struct Older {
  const char* name;
  Case c;
  int tile_kinds;  // of the plan
  PlanMode mode = PlanMode::balanced;
  int split = 0;
};
constexpr int bit(TileKind kind) { return 1 << static_cast<int>(kind); }

std::vector<Older> cases() {
  constexpr int kSmall = bit(TileKind::direct), k64 = bit(TileKind::streamed), k128 = bit(TileKind::packed);
  std::vector<Older> all{
      {"SmallTilesAlone", halves(KvForm::paged, 4, 64, 64, {{1, 300}, {1, 0}, {1, 33}}), kSmall},
      {"PagesOfOne", halves(KvForm::paged, 3, 32, 16, {{1, 130}, {2, 40}}), kSmall, PlanMode::fixed_split, 64},
      {"Rows64", halves(KvForm::ragged, 1, 64, 40, {{40, 70}, {1, 9}}), kSmall | k64},
      {"Rows128", halves(KvForm::paged, 5, 40, 64, {{30, 90}}), k128},
      {"PaddedCustomMask", halves(KvForm::padded, 3, 80, 72, {{9, 40}, {25, 70}}), k64},
      {"Window", halves(KvForm::ragged, 2, 24, 24, {{60, 90}, {3, 200}}), kSmall | k128},
      {"Hooks", halves(KvForm::paged, 3, 32, 16, {{5, 40}, {20, 70}}), kSmall | k64},
  };
  all[1].c.page_size = 1;
  all[2].c.mask = all[3].c.mask = all[5].c.mask = all[6].c.mask = Mask::causal;
  all[4].c.mask = Mask::custom;
  all[5].c.window = 20;
  all[6].c.variant = {.name = "turned_halves", .text = R"(struct turned_halves {
  real query_transform(P p, Vec x, int i, Row r) { return x[i] * real(0.5) + weft::pair(x, i) * real(0.25); }
  real key_transform(P p, Vec x, int i, Row r) { return x[i] * weft::rsqrt(weft::dot(x, x) + real(1)); }
  real logits_transform(P p, Score c, real s) { return s + real(c.kv_pos - c.q_pos) * real(0.01); }
  real output_transform(P p, Vec x, int i, Row r) { return x[i] * real(2); }
};
)"};
  return all;
}

class AttentionOnAnOlderMachine : public ::testing::TestWithParam<Older> {};

TEST_P(AttentionOnAnOlderMachine, AgreesWithTheReferenceWithinItsBound) {
  Problem problem(GetParam().c);
  problem.reference();
  AttentionSpec spec = problem.spec();
  spec.compute = DType::fp16;
  const AttentionKernel kernel = build_on(host_machine(), spec);
  const Plan plan = kernel.plan(problem.input(3, GetParam().mode, GetParam().split));
  EXPECT_EQ(plan.impl().header().tile_kinds, GetParam().tile_kinds);
  problem.poison_outputs();
  run_on(host_machine(), kernel, plan, problem.tensors());
  EXPECT_EQ(problem.compare(DType::fp16), "");
}
INSTANTIATE_TEST_SUITE_P(Case, AttentionOnAnOlderMachine, ::testing::ValuesIn(cases()),
                         [](const auto& older) { return std::string(older.param.name); });

// The code of e4m3 that is NaN becomes another number there. Of five queries the first does not see token 67; one query
// alone sees all, so that no row differs from another.
TEST_F(SpecialNumbers, OfFp8ReachTheRowsThatSeeThem) {
  for (const int queries : {5, 1}) {
    make(DType::fp8_e4m3, KvScales::none, queries, DType::fp16);
    expect_as_in_reference(67, [](Problem& p) { p.put_key(0, 67, 0xff, 100); });
    expect_as_in_reference(67, [](Problem& p) { p.put_value(0, 67, 0x7f, 100); });
  }
}

}  // namespace
}  // namespace weft
