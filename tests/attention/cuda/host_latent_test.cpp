// Latent rows by warpgroups in the host machine, against the fp64 reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>

#include "attention/kernel.h"
#include "host_families.h"

namespace weft {
namespace {

using testing::Case;
using testing::host_machine;
using testing::Problem;

// What is wrong with it in products.
std::string wrong_in_latent(Problem& problem, const PlanInput& input) {
  return testing::wrong_by(attention::cuda::latent_family(), problem, problem.spec(), input);
}
std::string wrong_in_latent(const Case& c, int workers = 2) {
  Problem problem(c);
  return wrong_in_latent(problem, problem.input(workers));
}

Case latent_rows(int dim_vo, DType type = DType::bf16) {
  Case c;
  c.form = KvForm::latent;
  c.q_dtype = c.kv_dtype = c.o_dtype = type;
  c.group = 20;
  c.head_dim_qk = dim_vo + 64;
  c.head_dim_vo = dim_vo;
  c.lengths = {{1, 200}, {1, 70}, {1, 0}, {1, 64}};  // as many tiles as warpgroups, more, fewer
  return c;
}

TEST(HostMachineLatent, IsOneTensorOrTwoInPagesOfAnySize) {
  Case c = latent_rows(128);
  EXPECT_EQ(wrong_in_latent(c), "") << "ckv and kpe";
  Problem problem(c);
  testing::expect_outputs_anywhere(problem, problem.spec(), problem.input(2));
  c.five_d = true;
  c.page_size = 1;
  EXPECT_EQ(wrong_in_latent(c), "") << "one tensor";
  c.strided = true;
  c.page_size = 64;
  EXPECT_EQ(wrong_in_latent(c), "") << "gaps between rows";
}

// 16 heads, and as many as make several tiles of rows, of one token and of several, which see different keys.
TEST(HostMachineLatent, HasHeadsOfSeveralTokens) {
  for (const auto& [group, tokens] : {std::pair{16, 1}, {16, 4}, {128, 1}, {33, 3}}) {
    Case c = latent_rows(128, DType::fp16);
    c.mask = Mask::causal;
    c.group = group;
    c.lengths = {{tokens, 70}, {tokens, tokens}};
    EXPECT_EQ(wrong_in_latent(c), "") << group << " heads, " << tokens << " tokens";
  }
}

TEST(HostMachineLatent, HasRowsOf512And256) {
  for (const int dim_vo : {512, 256}) {
    Case c = latent_rows(dim_vo);
    c.o_dtype = dim_vo == 512 ? DType::bf16 : DType::fp32;
    c.lengths = {{1, 150}};
    EXPECT_EQ(wrong_in_latent(c, 1), "") << dim_vo;
  }
}

TEST(HostMachineLatent, TakesMasksAndFunctors) {
  const auto case_with = [](Mask mask) {
    Case c = latent_rows(128);
    c.mask = mask;
    c.lengths = {{3, 150}, {2, 64}};
    return c;
  };
  Case c = case_with(Mask::causal);
  c.window = 80;
  EXPECT_EQ(wrong_in_latent(c), "") << "a window";
  c = case_with(Mask::none);
  c.sinks = 4;
  EXPECT_EQ(wrong_in_latent(c), "") << "sinks";
  EXPECT_EQ(wrong_in_latent(case_with(Mask::custom_packed)), "") << "bits of a mask";
  c = case_with(Mask::causal);
  c.variant = variants::logits_soft_cap();
  c.scalars = {{"cap", 5.}};
  EXPECT_EQ(wrong_in_latent(c), "") << "soft cap";
  c = case_with(Mask::causal);
  c.variant = variants::sigmoid();
  c.scalars = {{"bias", -1.0}};
  EXPECT_EQ(wrong_in_latent(c), "") << "no softmax";
}

// Scores grow from tile to tile: both warpgroups' sums shrink with each.
TEST(HostMachineLatent, FollowsMaximaThatGrow) {
  Case c = latent_rows(128);
  c.query_scale = 60;
  c.lengths = {{1, 500}};
  EXPECT_EQ(wrong_in_latent(c, 1), "");
}

TEST(HostMachineLatent, WritesStatesThatAreMerged) {
  Case c = latent_rows(128);
  c.group = 70;
  c.lengths = {{1, 300}, {1, 130}};
  Problem problem(c);
  EXPECT_EQ(wrong_in_latent(problem, problem.input(3, PlanMode::fixed_split, 128)), "");
}

// Of 140 rows: two CTAs have those of a unit, and of two levels either counts at groups that both merge.
TEST(HostMachineLatent, SharesPrefixesByLevels) {
  Case c = latent_rows(128);
  c.group = 70;
  c.lengths = {{1, 100}, {1, 90}};  // 7 and 6 pages
  Problem problem(c);
  PlanInput input = problem.input(3);
  std::vector<int32_t> ids(input.pages.kv_page_indices.begin(), input.pages.kv_page_indices.end());
  std::copy_n(ids.begin(), 4, ids.begin() + 7);
  input.pages.kv_page_indices = ids;
  const ReferenceResult flat = attention_reference(problem.spec(), input, problem.tensors());
  const std::vector<int32_t> both{0, 2}, each{0, 1, 2}, shared_indptr{0, 4}, shared_last{16}, own_indptr{0, 3, 5},
      own_ids{ids[4], ids[5], ids[6], ids[11], ids[12]}, own_last{4, 10};
  const PageTableView table = input.pages;
  const Level levels[] = {{both, {16, table.num_pages, shared_indptr, std::span(ids).first(4), shared_last}},
                          {each, {16, table.num_pages, own_indptr, own_ids, own_last}}};
  input.pages = {};
  input.levels = levels;
  const AttentionKernel kernel = build_on(host_machine(), problem.spec());
  const Plan plan = kernel.plan(input);
  ASSERT_GT(plan.num_partials(), 0);
  problem.poison_outputs();
  run_on(host_machine(), kernel, plan, problem.tensors());
  for (size_t i = 0; i < flat.o.size(); ++i)
    ASSERT_NEAR(testing::get(problem.tensors().o.data(), DType::bf16, static_cast<int64_t>(i)), flat.o[i], 0.03) << i;
}

// Rows that see it are no numbers, and the others keep every bit: all is multiplied again without it.
TEST(HostMachineLatent, KeepsWhatIsNoNumberToTheRowsThatSeeIt) {
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Case c = latent_rows(128, DType::fp16);
    c.mask = Mask::causal;
    c.group = 16;
    c.lengths = {{4, 135}};
    Problem problem(c);
    testing::expect_to_reach_who_sees_it(problem, problem.spec(), problem.input(1), 133, value);
  }
}

// kpe in rows that copies cannot serve: the plain path.
TEST(HostMachineLatent, TakesRowsThatBeginAnywhere) {
  Case c = latent_rows(128);
  Problem problem(c);
  problem.reference();
  AttentionTensors tensors = problem.tensors();
  const TensorView kpe = tensors.kv.v;
  const int64_t pages = kpe.shape(0), slots = kpe.shape(1);
  std::vector<uint16_t> moved(static_cast<size_t>(pages * slots * 65));
  for (int64_t page = 0; page < pages; ++page)
    for (int64_t slot = 0; slot < slots; ++slot)
      for (int64_t i = 0; i < 64; ++i)
        moved[static_cast<size_t>((page * slots + slot) * 65 + i)] =
            kpe.as<uint16_t>()[page * kpe.stride(0) + slot * kpe.stride(1) + i];
  tensors.kv.v = TensorView(moved.data(), DType::bf16, std::vector<int64_t>{pages, slots, 64},
                            std::vector<int64_t>{slots * 65, 65, 1});
  const AttentionKernel kernel = build_on(host_machine(), problem.spec());
  run_on(host_machine(), kernel, kernel.plan(problem.input(2)), tensors);
  EXPECT_EQ(problem.compare(DType::bf16), "");
}

TEST(LatentFamily, SaysWhyNot) {
  const auto why_not = [](auto change, const char* architecture = "sm_90a") {
    AttentionSpec spec = Problem(latent_rows(128)).spec();
    change(spec);
    return attention::cuda::latent_family().ability(spec, attention::cuda::find_architecture(architecture)).why_not;
  };
  const auto nothing = [](AttentionSpec&) {};
  EXPECT_EQ(why_not(nothing), "");
  EXPECT_EQ(why_not(nothing, "sm_80"), "sm_80 has no products of warpgroups");
  EXPECT_EQ(why_not([](AttentionSpec& s) { s.kv_form = KvForm::paged; }), "KV is not latent");
  EXPECT_EQ(why_not([](AttentionSpec& s) { s.loader = Loader::elements; }), "loader = elements");
  EXPECT_EQ(why_not([](AttentionSpec& s) { s.q_dtype = DType::fp32; }), "sm_90a has no products in fp32");
  EXPECT_EQ(why_not([](AttentionSpec& s) { s.kv_dtype = DType::fp16; }),
            "latent rows are stored in another type than queries");
  EXPECT_EQ(why_not([](AttentionSpec& s) { s.head_dim_qk += 8; }),
            "head_dim_vo is not 128, 256 or 512, or head_dim_qk is not 64 more");
  EXPECT_EQ(why_not([](AttentionSpec& s) { s.variant = variants::attention_sink(); }),
            "the variant changes queries, keys, values or outputs");
  EXPECT_EQ(why_not([](AttentionSpec& s) {
              s.q_dtype = s.kv_dtype = DType::fp16;
              s.variant = variants::sigmoid();
            }),
            "probabilities without softmax may be too large for fp16");
}

struct BrokenLatent {
  const char* name;
  simt::Breakage what;  // in attention/cuda/kernels
  const char* says;     // of the fault; empty: the output is wrong
  int group = 20;       // heads; of more than 64 two CTAs have the rows of items that are merged
};
const BrokenLatent kBrokenLatent[] = {
    {"RowsMultipliedBeforeTheyAreThere", {"latent/products.h", "columns.wait();", ""}, "still in flight"},
    {"QueriesMultipliedBeforeTheyAreThere",
     {"latent.h", "ptx::mbarrier_wait(&Shape::shared().queries_are_there, 0);", ""},
     "still in flight"},
    {"NoFenceBehindCopies",
     {"latent/products.h", "ptx::fence_async_shared();  // lanes copied them", ""},
     "no fence_async_shared()"},
    {"NoFenceBehindProbabilities",
     {"latent/products.h", "ptx::fence_async_shared();\n    ptx::named_arrive", "ptx::named_arrive"},
     "no fence_async_shared()"},
    {"ProbabilitiesReadBeforeTheyAreThere",
     {"latent/products.h", "ptx::named_sync(kProbabilitiesAreThere + tile % 2, Shape::kProductThreads);", ""},
     "no barrier orders"},
    {"ScoresReadBeforeTheirWait", {"latent/products.h", "ptx::wgmma_wait<0>(s_);", ""}, "wait"},
    {"RowsGivenBackBeforeTheyWereRead", {"latent/products.h", "ptx::wgmma_wait<0>(outputs());", ""}, "wait"},
    {"StageFilledBeforeItIsEmpty", {"latent/loader.h", "first_columns_.wait_for_room();", ""}, "still in flight"},
    {"RowsNotLocated",
     {"latent/loader.h", "ptx::warp_sync();  // it is said where the warp's rows lie", ""},
     "which no launch gave it"},
    {"SumsRelativeToOtherMaxima", {"latent/products.h", "own.sum[half] *= shrink[0][half];", ""}, ""},
    {"OutputsNotScaled", {"latent/products.h", "\n      scale_outputs(shrink);", ""}, ""},
    {"ColumnsOfTheOtherHalf",
     {"latent/shape.h", "return group() * Shape::kOwnVo;", "return 0;"},
     "no barrier orders the two"},
    {"SumOfOneWarpgroup", {"latent.h", "s.sum[0][r] + s.sum[1][r]", "s.sum[0][r]"}, ""},
    {"RegistersChangedWithoutABarrier",
     {"latent.h", "ptx::named_sync(kLoadersMeet, Shape::kLoaders);", ""},
     "no barrier lies between"},
    {"PartnersHaveTheSameRows", {"latent.h", "ptx::cta_index() % S::kPartners", "0"}, "no barrier", 70},
    {"ChunksMergedAsUnits", {"merge_apart.h", "item.chunk == 0", "true"}, "no barrier", 70},
    {"SharesOfTheSameColumns", {"merge.h", "state.head) + share * kColumns", "state.head)"}, "", 70},
};
class BrokenLatents : public ::testing::TestWithParam<const BrokenLatent*> {};

TEST_P(BrokenLatents, AreFound) {
  const BrokenLatent& broken = *GetParam();
  Case c = latent_rows(128);
  c.page_size = 2 + static_cast<int>(&broken - kBrokenLatent);  // kernels are remembered by their spec
  c.query_scale = 60;
  c.group = broken.group;
  c.lengths = {{1, 300}, {1, 5}};
  Problem problem(c);
  AttentionSpec spec = problem.spec();
  spec.page_size = c.page_size;
  testing::expect_to_be_found(problem, broken.what, broken.says, [&] {
    const AttentionKernel kernel = build_on(host_machine(), spec);
    const Plan plan = kernel.plan(broken.group > 64 ? problem.input(3, PlanMode::fixed_split, 128) : problem.input(1));
    Workspace workspace(Device::cuda(), plan.workspace_bytes());
    plan.upload(workspace);
    for (int i = 0; i < (broken.group > 64 ? 2 : 1); ++i) {  // what the first run leaves behind is found by the second
      problem.poison_outputs();
      const testing::Placed placed(host_machine(), problem.tensors());
      kernel.run(workspace, placed.tensors());
      placed.fetch();
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Each, BrokenLatents, ::testing::Range(std::begin(kBrokenLatent), std::end(kBrokenLatent)),
                         [](const auto& broken) { return std::string(broken.param->name); });

}  // namespace
}  // namespace weft
