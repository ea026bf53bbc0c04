// What the grid leaves out, in the host machine: forms, narrow types, hooks, levels, merging, strides, NaN and
// WEFT_CHECK.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "attention/kernel.h"
#include "host_target.h"
#include "tests/attention/kernels/problem.h"
#include "tests/attention/kernels/states.h"
#include "weft/block_sparse.h"

namespace weft {
namespace {

using testing::Case;
using testing::host_machine;
using testing::Problem;

// Runs in every type that the machine multiplies it in, and says what is wrong.
std::string wrong(Problem& problem, const AttentionSpec& spec, const PlanInput& input) {
  problem.reference();
  std::string all;
  for (const DType compute : host_machine().compute_types(spec)) {
    AttentionSpec own = spec;
    own.compute = compute;
    const AttentionKernel kernel = build_on(host_machine(), own);
    const Plan plan = kernel.plan(input);
    problem.poison_outputs();
    run_on(host_machine(), kernel, plan, problem.tensors());
    all += problem.compare(compute);
  }
  return all;
}
std::string wrong(const Case& c, int workers = 3) {
  Problem problem(c);
  return wrong(problem, problem.spec(), problem.input(workers));
}

Case small_case(DType type = DType::fp32) {
  Case c;
  c.q_dtype = c.kv_dtype = c.o_dtype = type;
  c.group = 3;
  c.kv_heads = 2;
  c.head_dim_qk = 32;
  c.head_dim_vo = 16;
  c.mask = Mask::causal;
  c.lengths = {{1, 130}, {5, 40}, {1, 0}, {3, 3}};
  return c;
}

TEST(HostMachineForms, LatentRows) {
  for (const bool one_tensor : {false, true}) {
    Case c = small_case(DType::bf16);
    c.form = KvForm::latent;
    c.kv_heads = 1;
    c.group = 18;
    c.head_dim_qk = 56;
    c.head_dim_vo = 40;
    c.five_d = one_tensor;
    EXPECT_EQ(wrong(c), "");
  }
}

TEST(HostMachineForms, NarrowTypesWithEveryScaling) {
  for (const DType type : {DType::int8, DType::int4, DType::fp8_e4m3, DType::fp8_e5m2})
    for (const KvScales scales : {KvScales::tensor, KvScales::head, KvScales::token, KvScales::token_group}) {
      Case c = small_case();
      c.kv_dtype = type;
      c.kv_scales = scales;
      c.kv_scale_group = scales == KvScales::token_group ? 4 : 0;
      c.lengths = {{1, 70}, {3, 20}};
      EXPECT_EQ(wrong(c), "") << to_string(type) << " " << to_string(scales);
    }
}

// The bits of the last block hide what a causal mask would.
TEST(HostMachineForms, BlocksWithBits) {
  for (const DType type : {DType::fp32, DType::bf16}) {
    Case c = small_case(type);
    c.lengths = {{3, 37}};
    Problem problem(c);
    PlanInput input = problem.input(2);
    const std::vector<int32_t> indptr{0, 3}, last{5}, bits_index{-1, -1, 0};
    std::vector<uint8_t> bits(6);
    for (int row = 0; row < 3; ++row)
      for (int slot = 0; slot <= 2 + row; ++slot) bits[static_cast<size_t>(2 * row)] |= static_cast<uint8_t>(1 << slot);
    BlockSparse blocks{.block_rows = 3, .block_cols = 16, .num_blocks = input.pages.num_pages};
    blocks.block_indptr = indptr;
    blocks.block_indices = input.pages.kv_page_indices;
    blocks.last_block_len = last;
    blocks.bits_index = bits_index;
    blocks.bits = bits;
    input.pages = {};
    input.blocks = &blocks;
    AttentionSpec spec = problem.spec();
    spec.kv_form = KvForm::block_sparse;
    spec.mask = Mask::none;
    EXPECT_EQ(wrong(problem, spec, input), "") << to_string(type);
    const std::vector<int32_t> positions{0, 16, 32};  // the same ones, said
    blocks.kv_positions = positions;
    spec.mask = Mask::causal;
    EXPECT_EQ(wrong(problem, spec, input), "") << to_string(type);
  }
}

TEST(HostMachineForms, BlocksOfWhichNoRowSeesSome) {
  for (const DType type : {DType::fp32, DType::bf16}) {
    Case c = small_case(type);
    c.lengths = {{3, 37}};
    c.mask = Mask::causal;
    c.window = 10;
    Problem problem(c);
    PlanInput input = problem.input(2);
    const std::vector<int32_t> indptr{0, 3}, last{5};
    BlockSparse blocks{.block_rows = 3, .block_cols = 16, .num_blocks = input.pages.num_pages};
    blocks.block_indptr = indptr;
    blocks.block_indices = input.pages.kv_page_indices;
    blocks.last_block_len = last;
    input.pages = {};
    input.blocks = &blocks;
    input.mode = PlanMode::fixed_split;  // items begin where no row sees a key
    input.fixed_split_size = 64;
    AttentionSpec spec = problem.spec();
    spec.kv_form = KvForm::block_sparse;
    EXPECT_EQ(wrong(problem, spec, input), "") << to_string(type);
  }
}

// One type each, which run beside each other.
class HostMachineVariants : public ::testing::TestWithParam<DType> {};

TEST_P(HostMachineVariants, WithHooks) {
  const DType type = GetParam();
  std::vector<float> slopes{0.5f, 0.25f, 0.125f, 0.0625f, 0.5f, 1.f}, table(256 * 32);
  for (size_t i = 0; i < table.size(); ++i) table[i] = std::sin(static_cast<float>(i));
  const TensorView of_heads(slopes.data(), DType::fp32, {6}), angles(table.data(), DType::fp32, {256, 32});
  Case c = small_case(type);
  c.variant = variants::logits_soft_cap();
  c.mask = Mask::custom;
  for (const double cap : {5., 0., std::numeric_limits<double>::infinity()}) {  // the last two leave logits alone
    c.scalars = {{"cap", cap}};
    EXPECT_EQ(wrong(c), "") << "soft cap " << cap;
  }
  c = small_case(type);
  c.variant = variants::alibi();
  c.tensors = {{"slopes", of_heads}};
  EXPECT_EQ(wrong(c), "") << "alibi";
  c = small_case(type);
  c.variant = variants::sigmoid();
  c.scalars = {{"bias", -1.0}};
  EXPECT_EQ(wrong(c), "") << "sigmoid";
  c = small_case(type);
  c.variant = variants::attention_sink();
  c.tensors = {{"sinks", of_heads}};
  EXPECT_EQ(wrong(c), "") << "sinks";
  c = small_case(type);
  c.variant = {.name = "turned",
               .text = R"(struct turned {
  real scale = 0;
  void init(P p, Request r) { scale = real(r.batch + 1); }
  real query_transform(P p, Vec x, int i, Row r) { return x[i] * real(0.5) + weft::pair(x, i) * p.table(r.pos + 3, i); }
  real key_transform(P p, Vec x, int i, Row r) { return x[i] * weft::rsqrt(weft::dot(x, x) + real(1)); }
  real logits_transform(P p, Score c, real s) { return s + real(c.kv_pos - c.q_pos) * real(0.01) * scale; }
  real output_transform(P p, Vec x, int i, Row r) { return x[i] * scale; }
  real lse_transform(P p, Row r) { return r.lse + scale; }
};
)",
               .tensors = {{"table", DType::fp32, 2}}};
  c.tensors = {{"table", angles}};
  if (type != DType::fp32) {  // by products; the text below has these hooks too, on the plain path
    EXPECT_EQ(wrong(c), "") << "hooks";
  }
  c.variant.text.insert(
      c.variant.text.find("  real logits_transform"),
      "  real value_transform(P p, Vec x, int i, Row r) { return x[i] + weft::sum(x) / real(16); }\n");
  EXPECT_EQ(wrong(c), "") << "values";
}
INSTANTIATE_TEST_SUITE_P(Type, HostMachineVariants, ::testing::Values(DType::fp32, DType::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST(HostMachineForms, ScalesThatAreNotPositive) {
  for (const float scale : {0.f, -0.25f}) {
    Case c = small_case(DType::bf16);
    Problem problem(c);
    AttentionTensors tensors = problem.tensors();
    tensors.sm_scale = scale;
    const ReferenceResult expected = attention_reference(problem.spec(), problem.input(1), tensors);
    const AttentionKernel kernel = build_on(host_machine(), problem.spec());
    run_on(host_machine(), kernel, kernel.plan(problem.input(2)), tensors);
    for (size_t i = 0; i < expected.o.size(); ++i)
      ASSERT_NEAR(testing::get(tensors.o.data(), DType::bf16, static_cast<int64_t>(i)), expected.o[i], 0.05) << i;
  }
}

// A functor sees the lengths of whole requests.
TEST(HostMachineForms, Levels) {
  for (const DType type : {DType::fp32, DType::bf16}) {
    Case c = small_case(type);
    c.variant = {.name = "by_lengths", .text = R"(struct by_lengths {
  real logits_transform(P p, Score c, real s) { return s + real(c.kv_len % 7 + c.qo_len) * real(c.kv_pos % 2); }
};
)"};
    testing::expect_levels_merge(host_machine(), c, type == DType::fp32 ? 1e-4 : 0.03);
  }
}

// Copies take 16 bytes: rows that begin elsewhere go the plain path.
TEST(HostMachineForms, StridesThatCopiesCannotServe) {
  Case c = small_case(DType::bf16);
  Problem problem(c);
  problem.reference();
  AttentionTensors tensors = problem.tensors();
  const int64_t rows = tensors.q.shape(0), heads = tensors.q.shape(1), dim = tensors.q.shape(2);
  std::vector<uint16_t> q(static_cast<size_t>(rows * (heads * dim + 1)));
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(q.data() + r * (heads * dim + 1), tensors.q.as<uint16_t>() + r * heads * dim,
                static_cast<size_t>(heads * dim) * 2);
  tensors.q = TensorView(q.data(), DType::bf16, std::vector<int64_t>{rows, heads, dim},
                         std::vector<int64_t>{heads * dim + 1, dim, 1});
  const AttentionKernel kernel = build_on(host_machine(), problem.spec());
  run_on(host_machine(), kernel, kernel.plan(problem.input(2)), tensors);
  EXPECT_EQ(problem.compare(DType::fp32), "");
}

// Token 38 of 40 is seen by the last two of five queries.
TEST(HostMachineForms, AValueThatIsNoNumberReachesTheRowsThatSeeIt) {
  for (const DType type : {DType::fp32, DType::bf16, DType::fp16})
    for (const double value : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
      Case c = small_case(type);
      c.lengths = {{5, 40}, {1, 130}};
      Problem problem(c);
      const AttentionKernel kernel = build_on(host_machine(), problem.spec());
      const Plan plan = kernel.plan(problem.input(2));
      run_on(host_machine(), kernel, plan, problem.tensors());
      const std::string clean = problem.outputs();
      problem.put_value(0, 38, value);
      run_on(host_machine(), kernel, plan, problem.tensors());
      const std::string spoilt = problem.outputs();
      const TensorView o = problem.tensors().o;
      const auto bytes = static_cast<size_t>(bits_of(type) / 8);
      for (int64_t i = 0; i < o.size(); ++i) {
        const int64_t row = i / (6 * 16);
        if (row >= 3 && row < 5 && i % 16 == 0) {
          const double got = testing::get(o.data(), type, i);
          ASSERT_TRUE(std::isnan(value) ? std::isnan(got) : got == value) << i << " is " << got;
        } else {
          ASSERT_EQ(clean.substr(static_cast<size_t>(i) * bytes, bytes),
                    spoilt.substr(static_cast<size_t>(i) * bytes, bytes))
              << i;
        }
      }
    }
}

TEST(HostMachineForms, TilesAreWhatTheirIntervalsSay) {
  setenv("WEFT_CHECK", "1", 1);
  for (const DType type : {DType::fp32, DType::bf16}) {
    Case c = small_case(type);
    c.window = 20;
    EXPECT_EQ(wrong(c), "");
  }
  unsetenv("WEFT_CHECK");
}

TEST(HostMachineForms, AttendsAndMergesStates) { testing::expect_parts_merge(host_machine(), 40); }

}  // namespace
}  // namespace weft
