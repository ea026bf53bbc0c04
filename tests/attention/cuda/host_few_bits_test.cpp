// Keys and values of 8 and 4 bits that stay so until they are multiplied, in the host machine: every type, dim and
// scale, each code, and codes and scales that are no finite number.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "few_bits.h"
#include "weft/block_sparse.h"

namespace weft {
namespace {

using testing::Case;
using testing::few_bits_case;
using testing::host_machine;
using testing::Problem;
using testing::products_of;
using testing::SpecialNumbers;

std::string wrong_of_products(Problem& problem, const AttentionSpec& spec, const PlanInput& input) {
  problem.reference();
  const AttentionKernel kernel = products_of(spec);
  problem.poison_outputs();
  run_on(host_machine(), kernel, kernel.plan(input), problem.tensors());
  return problem.compare(spec.q_dtype);
}
std::string wrong_of_products(const Case& c) {
  Problem problem(c);
  return wrong_of_products(problem, problem.spec(), problem.input(3)) +
         wrong_of_products(problem, problem.spec(), problem.input(2, PlanMode::fixed_split, 64));
}

constexpr DType kE4m3 = DType::fp8_e4m3, kE5m2 = DType::fp8_e5m2, kBf16 = DType::bf16, kFp16 = DType::fp16;

TEST(HostMachineFewBits, ScalesOfATensorOrAHead) {
  Case c = few_bits_case(kBf16, DType::int8, KvScales::tensor, 64);
  EXPECT_EQ(wrong_of_products(c), "");
  c = few_bits_case(kBf16, DType::int4, KvScales::head, 96);
  c.page_size = 1;
  c.group = 7;
  EXPECT_EQ(wrong_of_products(c), "");
  c.lengths = {{1, 900}};  // pages of more tiles than stages
  Problem longer(c);
  EXPECT_EQ(wrong_of_products(longer, longer.spec(), longer.input(1)), "");
  c = few_bits_case(kFp16, DType::int8, KvScales::head, 128);
  c.head_dim_vo = 64;
  c.variant = variants::logits_soft_cap();
  c.scalars = {{"cap", 5.}};
  EXPECT_EQ(wrong_of_products(c), "");
}

TEST(HostMachineFewBits, ScalesOfTokens) {
  Case c = few_bits_case(kBf16, DType::int4, KvScales::token, 128);
  c.group = 5;
  c.form = KvForm::ragged;
  c.o_dtype = DType::fp32;
  EXPECT_EQ(wrong_of_products(c), "");
  c = few_bits_case(kBf16, DType::int8, KvScales::token_group, 64);
  c.page_size = 15;
  c.kv_scale_group = 5;
  c.layout = Layout::hnd;
  c.variant = variants::sigmoid();
  c.scalars = {{"bias", -1.0}};
  EXPECT_EQ(wrong_of_products(c), "");
  c = few_bits_case(kBf16, kE4m3, KvScales::token_group, 256);
  c.form = KvForm::padded;
  c.kv_scale_group = 3;
  c.window = 20;
  EXPECT_EQ(wrong_of_products(c), "");
}

// Rows of 40, 24 and 16 bytes, and products of 32 bytes at a time.
TEST(HostMachineFewBits, DimsThatEndWithinAProduct) {
  Case c = few_bits_case(kBf16, kE5m2, KvScales::none, 80);
  c.head_dim_vo = 48;
  EXPECT_EQ(wrong_of_products(c), "");
  c = few_bits_case(kFp16, DType::int4, KvScales::tensor, 32);
  c.o_dtype = DType::fp32;
  EXPECT_EQ(wrong_of_products(c), "");
}

// Tiles of 16, 64 and 128 rows, whose queries stay in registers or do not.
TEST(HostMachineFewBits, Prompts) {
  for (const DType kv : {DType::int4, kE4m3}) {
    Case c = few_bits_case(kBf16, kv, kv == DType::int4 ? KvScales::token : KvScales::head, 128);
    c.kv_heads = 1;
    c.lengths = {{90, 130}, {3, 70}};
    EXPECT_EQ(wrong_of_products(c), "");
  }
}

TEST(HostMachineFewBits, QueriesThatAHookMakes) {
  Case c = few_bits_case(kBf16, DType::int8, KvScales::head, 64);
  c.variant = {
      .name = "doubled_queries",
      .text = "struct doubled_queries { real query_transform(P, Vec x, int i, Row) { return x[i] + x[i]; } };"};
  EXPECT_EQ(wrong_of_products(c), "");
}

TEST(HostMachineFewBits, BlocksAndTheirPositions) {
  Case c = few_bits_case(kBf16, DType::int8, KvScales::token, 64);
  c.lengths = {{3, 37}};
  Problem problem(c);
  PlanInput input = problem.input(2);
  const std::vector<int32_t> indptr{0, 3}, last{5}, positions{0, 16, 32};
  BlockSparse blocks{.block_rows = 3, .block_cols = 16, .num_blocks = input.pages.num_pages};
  blocks.block_indptr = indptr;
  blocks.block_indices = input.pages.kv_page_indices;
  blocks.last_block_len = last;
  blocks.kv_positions = positions;
  input.pages = {};
  input.blocks = &blocks;
  AttentionSpec spec = problem.spec();
  spec.kv_form = KvForm::block_sparse;
  EXPECT_EQ(wrong_of_products(problem, spec, input), "");
}

TEST(FewBitsRefusal, NamesWhatEachFamilyLacks) {
  const auto refused = [](AttentionSpec spec) {
    try {
      products_of(spec);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  const auto has = [](const std::string& text, const char* words) { return text.find(words) != text.npos; };
  AttentionSpec spec{.q_dtype = kBf16, .kv_dtype = kE4m3, .head_dim_qk = 264, .head_dim_vo = 264};
  EXPECT_TRUE(has(refused(spec), "mma: head dims are above 256")) << refused(spec);
  spec = {.q_dtype = DType::fp32, .kv_dtype = kE4m3};
  EXPECT_TRUE(has(refused(spec), "no products in fp32")) << refused(spec);
  spec = {.q_dtype = kBf16, .kv_dtype = kE5m2};
  spec.variant = {.name = "halved_keys",
                  .text = "struct halved_keys { real key_transform(P, Vec x, int i, Row) { return x[i] / 2; } };"};
  EXPECT_TRUE(has(refused(spec), "key_transform, and KV stays fp8_e5m2")) << refused(spec);
}

// One key: the output is its value, and lse each query's product with it, of queries with a single 1.
class EveryCode : public ::testing::TestWithParam<std::pair<DType, DType>> {};

TEST_P(EveryCode, IsTheNumberThatItStandsFor) {
  const auto [q_type, kv_type] = GetParam();
  const bool scaled = kv_type == DType::int8 || kv_type == DType::int4;
  constexpr int kDim = 128, kCodes = 256;  // bytes of the KV heads together
  const int kv_heads = kCodes * 8 / bits_of(kv_type) / kDim, heads = kv_heads * kDim;
  AttentionSpec spec{.q_dtype = q_type,
                     .kv_dtype = kv_type,
                     .head_dim_qk = kDim,
                     .head_dim_vo = kDim,
                     .kv_form = KvForm::ragged,
                     .kv_scales = scaled ? KvScales::tensor : KvScales::none};
  std::vector<uint8_t> k(kCodes), v(kCodes);
  for (int i = 0; i < kCodes; ++i) k[static_cast<size_t>(i)] = v[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
  std::vector<uint16_t> q(static_cast<size_t>(heads * kDim));
  for (int h = 0; h < heads; ++h) testing::put(q.data(), q_type, int64_t{h} * kDim + h % kDim, 1);
  std::vector<float> o(static_cast<size_t>(heads * kDim)), lse(static_cast<size_t>(heads));
  float scale[] = {1};
  AttentionTensors t;
  t.q = TensorView(q.data(), q_type, {1, heads, kDim});
  const TensorView scales(scale, DType::fp32, {1, 1, 1});
  t.kv = {TensorView(k.data(), kv_type, {1, kv_heads, kDim}), TensorView(v.data(), kv_type, {1, kv_heads, kDim}),
          scaled ? scales : TensorView{}, scaled ? scales : TensorView{}};
  t.o = TensorView(o.data(), DType::fp32, {1, heads, kDim});
  t.lse = TensorView(lse.data(), DType::fp32, {1, heads});
  t.sm_scale = 1.f;
  // What is no finite number is left to the values: of a key it would be in every product.
  std::vector<double> of_code;
  for (int i = 0; i < heads; ++i) {
    of_code.push_back(element(t.kv.v, i));
    if (!std::isfinite(of_code.back())) k[static_cast<size_t>(i)] = 0;
  }
  const std::vector<int32_t> qo_indptr{0, 1}, kv_indptr{0, 1};
  PlanInput input{.num_qo_heads = heads, .num_kv_heads = kv_heads, .qo_indptr = qo_indptr, .kv_indptr = kv_indptr};
  const AttentionKernel kernel = products_of(spec);
  run_on(host_machine(), kernel, kernel.plan(input), t);
  for (int h = 0; h < heads; ++h) {
    const double number = of_code[static_cast<size_t>(h)], expected = std::isfinite(number) ? number : 0;
    ASSERT_NEAR(lse[static_cast<size_t>(h)], expected, 1e-6 * std::abs(expected)) << "key " << h;
  }
  // A query of each KV head, and small logits, of which exponentials are exact.
  input.num_qo_heads = kv_heads;
  t.q = t.q.slice(1, 0, kv_heads);
  t.o = t.o.slice(1, 0, kv_heads);
  t.lse = t.lse.slice(1, 0, kv_heads);
  t.sm_scale = 0x1p-40f;
  run_on(host_machine(), kernel, kernel.plan(input), t);
  for (int i = 0; i < heads; ++i) {
    const double value = of_code[static_cast<size_t>(i)];
    const float got = o[static_cast<size_t>(i)];
    const bool same = std::isfinite(value) ? std::abs(got - value) <= 1e-6 * std::abs(value)
                      : std::isnan(value)  ? std::isnan(got)
                                           : got == value;
    ASSERT_TRUE(same) << "value " << i << " is " << got;
  }
}
INSTANTIATE_TEST_SUITE_P(Types, EveryCode,
                         ::testing::Values(std::pair{kBf16, DType::int8}, std::pair{kFp16, DType::int4},
                                           std::pair{kBf16, kE4m3}, std::pair{kBf16, kE5m2}),
                         [](const auto& types) {
                           return std::string(to_string(types.param.first)) + "_" +
                                  std::string(to_string(types.param.second));
                         });

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// Of five queries the first does not see token 67.
TEST_F(SpecialNumbers, OfValuesReachTheRowsThatSeeThem) {
  make(kE4m3, KvScales::none, 5);
  for (const auto& [code, element] : {std::pair{0x7f, 100}, {0xff, 3}})
    expect_as_in_reference(67, [&](Problem& p) { p.put_value(0, 67, code, element); });
}

TEST_F(SpecialNumbers, OfKeysReachTheRowsThatSeeThem) {
  make(kE5m2, KvScales::token, 5, kFp16);
  for (const int code : {0x7f, 0xfc}) expect_as_in_reference(67, [&](Problem& p) { p.put_key(0, 67, code, 100); });
  expect_as_in_reference(67, [](Problem& p) { p.put_value(0, 67, 0x7c, 100); });
}

// A scale that is infinite stands beside a value that is 0: their product is NaN.
TEST_F(SpecialNumbers, OfScalesReachTheRowsThatSeeThem) {
  make(DType::int8, KvScales::token, 5);
  for (const double scale : {kNoNumber, -std::numeric_limits<double>::infinity()})
    expect_as_in_reference(67, [&](Problem& p) {
      p.put_value_scale(0, 67, scale);
      p.put_value(0, 67, 0, 5);
    });
}

// Queries by a power of two, the logits' scale by its reciprocal: not a bit changes, wherever bf16 has room.
TEST(HostMachineFewBits, QueriesOfAnySize) {
  Problem problem(few_bits_case(kBf16, DType::int4, KvScales::head, 64));
  const AttentionKernel kernel = products_of(problem.spec());
  const Plan plan = kernel.plan(problem.input(2));
  AttentionTensors t = problem.tensors();
  const auto outputs = [&] {
    problem.poison_outputs();
    run_on(host_machine(), kernel, plan, t);
    return problem.outputs();
  };
  const std::string expected = outputs();
  const std::vector<char> queries(static_cast<const char*>(t.q.data()),
                                  static_cast<const char*>(t.q.data()) + 2 * t.q.size());
  const float sm_scale = t.sm_scale.value_or(1 / std::sqrt(64.f));
  for (const int exponent : {-60, 20, 100}) {
    for (int64_t i = 0; i < t.q.size(); ++i)
      testing::put(t.q.data(), kBf16, i, std::ldexp(testing::get(queries.data(), kBf16, i), exponent));
    t.sm_scale = std::ldexp(sm_scale, -exponent);
    EXPECT_EQ(outputs(), expected) << exponent;
  }
}

// Scales of tokens from 2^-60 to 2^60, which grow and shrink along the keys; without softmax weights of any size, too.
TEST(HostMachineFewBits, WeightsOfAnySize) {
  for (const bool grows : {true, false}) {
    Case c = few_bits_case(grows ? kBf16 : kFp16, DType::int8, KvScales::token, 64);
    c.o_dtype = DType::fp32;
    c.lengths = {{1, 300}, {2, 140}};
    Problem problem(c);
    for (size_t request = 0; request < 2; ++request)
      for (int t = 0; t < c.lengths[request].second; ++t)
        problem.put_value_scale(request, t,
                                std::ldexp(1 + t % 7 / 8., (grows ? t : -t) * 120 / 300 + (grows ? -60 : 60)));
    EXPECT_EQ(wrong_of_products(problem, problem.spec(), problem.input(2)), "") << grows;
  }
  Case c = few_bits_case(kFp16, kE4m3, KvScales::none, 64);
  c.o_dtype = DType::fp32;
  c.variant = {.name = "large_weights",
               .text =
                   "struct large_weights { static constexpr bool use_softmax = false;\n"
                   "  real logits_transform(P, Score c, real s) { return s * real(1 + c.kv_pos % 5 * 30000); } };"};
  c.variant.use_softmax = false;
  EXPECT_EQ(wrong_of_products(c), "");
}

}  // namespace
}  // namespace weft
