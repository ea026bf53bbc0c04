// Products of warpgroups in the host machine, against the fp64 reference: tiles of 64 and 128 rows of every form, with
// every kind of mask and hook.
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <string>

#include "attention/kernel.h"
#include "host_families.h"
#include "weft/block_sparse.h"

namespace weft {
namespace {

using testing::Case;
using testing::case_of;
using testing::host_machine;
using testing::Problem;

// What is wrong with the problem where the threads that multiply load themselves.
std::string wrong_in_products(Problem& problem, AttentionSpec spec, const PlanInput& input,
                              attention::TileKind kind = attention::TileKind::packed) {
  spec.loader = Loader::cp_async;
  return testing::wrong_by(attention::cuda::wgmma_family(), problem, spec, input, kind);
}
std::string wrong_in_products(const Case& c, int workers = 2) {
  Problem problem(c);
  return wrong_in_products(problem, problem.spec(), problem.input(workers));
}

AttentionSpec spec_of(const Problem& problem) {
  AttentionSpec spec = problem.spec();
  spec.loader = Loader::cp_async;
  return spec;
}

struct Dims {
  DType type;
  int qk, vo;
};
class HostMachineWarpgroups : public ::testing::TestWithParam<Dims> {};

// Panels of 128, 64 and 32 bytes, and rows that end with zeros.
TEST_P(HostMachineWarpgroups, AgreeWithTheReferenceWithinItsBound) {
  const auto [type, qk, vo] = GetParam();
  Case c = case_of(type, qk, vo);
  Problem problem(c);
  EXPECT_EQ(wrong_in_products(problem, problem.spec(), problem.input(2),
                              vo > 128 ? attention::TileKind::streamed : attention::TileKind::packed),
            "");
  if (qk == 64) testing::expect_outputs_anywhere(problem, spec_of(problem), problem.input(1));
}
INSTANTIATE_TEST_SUITE_P(Dims, HostMachineWarpgroups,
                         ::testing::Values(Dims{DType::bf16, 64, 64}, Dims{DType::fp16, 128, 128},
                                           Dims{DType::bf16, 256, 256}, Dims{DType::bf16, 192, 128},
                                           Dims{DType::fp16, 40, 72}, Dims{DType::bf16, 80, 24}),
                         [](const auto& dims) {
                           return std::string(to_string(dims.param.type)) + "_" + std::to_string(dims.param.qk) + "_" +
                                  std::to_string(dims.param.vo);
                         });

TEST(HostMachineWarpgroup, TakesEveryFormMaskAndOutput) {
  Case c = case_of(DType::bf16, 48, 32);
  c.form = KvForm::ragged;
  EXPECT_EQ(wrong_in_products(c), "") << "ragged";
  c.form = KvForm::padded;
  c.strided = true;
  EXPECT_EQ(wrong_in_products(c), "") << "padded";
  c = case_of(DType::bf16, 48, 32);
  c.page_size = 1;
  c.window = 30;
  EXPECT_EQ(wrong_in_products(c), "") << "a window over pages of one token";
  c = case_of(DType::bf16, 48, 32);
  c.mask = Mask::custom_packed;
  c.o_dtype = DType::fp32;
  EXPECT_EQ(wrong_in_products(c), "") << "bits of a mask";
  c.mask = Mask::none;
  c.sinks = 4;
  EXPECT_EQ(wrong_in_products(c), "") << "sinks";
}

// Items of one unit on several workers: their states are partial, and the last one merges them.
TEST(HostMachineWarpgroup, WritesStatesThatAreMerged) {
  Case c = case_of(DType::bf16, 32, 32);
  c.lengths = {{26, 300}};
  Problem problem(c);
  PlanInput input = problem.input(3);
  input.mode = PlanMode::fixed_split;
  input.fixed_split_size = 128;
  EXPECT_EQ(wrong_in_products(problem, problem.spec(), input), "");
}

TEST(HostMachineWarpgroup, TakesHooks) {
  std::vector<float> table(256 * 32);
  for (size_t i = 0; i < table.size(); ++i) table[i] = std::sin(static_cast<float>(i));
  Case c = case_of(DType::bf16, 32, 32);
  c.variant = variants::logits_soft_cap();
  c.scalars = {{"cap", 5.}};
  EXPECT_EQ(wrong_in_products(c), "") << "soft cap";
  c = case_of(DType::bf16, 32, 32);
  c.variant = variants::sigmoid();
  c.scalars = {{"bias", -1.0}};
  EXPECT_EQ(wrong_in_products(c), "") << "no softmax";
  c = case_of(DType::bf16, 32, 32);
  c.variant = {.name = "turned",
               .text = R"(struct turned {
  real query_transform(P p, Vec x, int i, Row r) { return x[i] * real(0.5) + weft::pair(x, i) * p.table(r.pos + 3, i); }
  real key_transform(P p, Vec x, int i, Row r) { return x[i] * weft::rsqrt(weft::dot(x, x) + real(1)); }
  bool logits_mask(P p, Score c) { return weft::mod_const(c.kv_idx, 3) != 1; }
  real output_transform(P p, Vec x, int i, Row r) { return x[i] * real(2); }
};
)",
               .tensors = {{"table", DType::fp32, 2}}};
  c.tensors = {{"table", TensorView(table.data(), DType::fp32, {256, 32})}};
  EXPECT_EQ(wrong_in_products(c), "") << "of queries, keys, logits and outputs";
}

TEST(HostMachineWarpgroup, WalksBlocksWithBits) {
  Case c = case_of(DType::bf16, 32, 32);
  c.lengths = {{26, 40}};
  Problem problem(c);
  PlanInput input = problem.input(2);
  const std::vector<int32_t> indptr{0, 3}, last{8}, bits_index{-1, -1, 0};
  std::vector<uint8_t> bits(52);
  for (int row = 0; row < 26; ++row)
    for (int slot = 0; slot < 16; ++slot)
      if (32 + slot <= 14 + row) bits[static_cast<size_t>(2 * row + slot / 8)] |= static_cast<uint8_t>(1 << slot % 8);
  BlockSparse blocks{.block_rows = 26, .block_cols = 16, .num_blocks = input.pages.num_pages};
  blocks.block_indptr = indptr;
  blocks.block_indices = input.pages.kv_page_indices;
  blocks.last_block_len = last;
  blocks.bits_index = bits_index;
  blocks.bits = bits;
  const std::vector<int32_t> positions{0, 16, 32};
  blocks.kv_positions = positions;
  input.pages = {};
  input.blocks = &blocks;
  AttentionSpec spec = problem.spec();
  spec.kv_form = KvForm::block_sparse;
  EXPECT_EQ(wrong_in_products(problem, spec, input), "");
}

// A tile is multiplied again without it, and it reaches the rows that see it: the last two of 26 queries.
TEST(HostMachineWarpgroup, KeepsAValueThatIsNoNumberToTheRowsThatSeeIt) {
  Case c = case_of(DType::bf16, 32, 32);
  c.lengths = {{26, 135}};
  Problem problem(c);
  testing::expect_to_reach_who_sees_it(problem, spec_of(problem), problem.input(2), 133,
                                       std::numeric_limits<double>::quiet_NaN());
}

struct BrokenProducts {
  const char* name;
  simt::Breakage what;  // in attention/cuda/kernels
  int dim_vo;           // another one each, as kernels are remembered; up to 96 all scores are there at once
  const char* says;     // of the fault; empty: the output is wrong
};
const BrokenProducts kBrokenProducts[] = {
    {"NoFenceBeforeProducts",
     {"mma/shape.h", "if constexpr (kByWarpgroup) ptx::fence_async_shared();", ";"},
     16,
     "no fence_async_shared()"},
    {"ScoresReadBeforeTheirWait", {"wgmma.h", "ptx::wgmma_wait<0>(products_of(0));", ""}, 24, "wait"},
    {"SecondScoresReadBeforeTheirWait",
     {"wgmma.h", "ptx::wgmma_wait<0>(products_of(m), outputs(states, m - 1), p_[m - 1]);", ";"},
     104,
     "wait"},
    {"AllScoresReadBeforeTheirWait", {"wgmma.h", "ptx::wgmma_wait<1>(products_of(m));", ";"}, 32, "wait"},
    {"TileOverwrittenBeforeItWasRead",
     {"wgmma.h", "ptx::wgmma_wait<kBehind>(outputs(states, kFragments - 1), p_[kFragments - 1]);", ";"},
     112,
     "wait"},
    {"TileMultipliedBeforeItIsThere",
     {"mma.h", "    ptx::cp_async_wait<0>();\n    Shape::publish();", "    Shape::publish();"},
     56,
     "still in flight"},
    {"QueriesOfAnotherWarp", {"mma/shape.h", "kFragments == 1) return at;", "true) return at;"}, 40, ""},
    {"ValuesOfOtherKeys", {"wgmma.h", "values.columns(k, 0)", "values.columns(0, 0)"}, 48, ""},
};
class BrokenWarpgroups : public ::testing::TestWithParam<const BrokenProducts*> {};

TEST_P(BrokenWarpgroups, AreFound) {
  const BrokenProducts& broken = *GetParam();
  Case c = case_of(DType::bf16, 24, broken.dim_vo);
  c.mask = Mask::none;
  Problem problem(c);
  testing::expect_to_be_found(problem, broken.what, broken.says, [&] {
    const AttentionKernel kernel = build_on(host_machine(), spec_of(problem));
    run_on(host_machine(), kernel, kernel.plan(problem.input(2)), problem.tensors());
  });
}
INSTANTIATE_TEST_SUITE_P(Each, BrokenWarpgroups,
                         ::testing::Range(std::begin(kBrokenProducts), std::end(kBrokenProducts)),
                         [](const auto& broken) { return std::string(broken.param->name); });

}  // namespace
}  // namespace weft
