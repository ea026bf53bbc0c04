// Caches of 8 and 4 bits: every pair of {type, granularity of scales, form, layout, q and o types, ...} against the
// fp64 reference, which reads the stored numbers and scales as they are; dead slots hold NaN, and so do their scales.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "attention/cpu/leaf.h"
#include "attention/kernel.h"
#include "problem.h"
#include "weft/block_sparse.h"

namespace weft::test::low_bit {
namespace {

using testing::Case;
using testing::Problem;
using testing::Target;

struct Stored {
  DType dtype;
  KvScales scales;
  int group = 0;
};
constexpr Stored kStored[] = {
    {DType::int8, KvScales::tensor},         {DType::int8, KvScales::head},           {DType::int8, KvScales::token},
    {DType::int8, KvScales::token_group, 4}, {DType::int4, KvScales::tensor},         {DType::int4, KvScales::head},
    {DType::int4, KvScales::token},          {DType::int4, KvScales::token_group, 8}, {DType::fp8_e4m3, KvScales::none},
    {DType::fp8_e4m3, KvScales::token},      {DType::fp8_e4m3, KvScales::head},       {DType::fp8_e5m2, KvScales::none},
    {DType::fp8_e5m2, KvScales::token},      {DType::fp8_e5m2, KvScales::tensor}};
constexpr KvForm kForms[] = {KvForm::paged, KvForm::padded, KvForm::ragged, KvForm::paged};
constexpr int kPageSizes[] = {16, 1, 1, 8};  // beside kForms
constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};
constexpr int kGroups[] = {1, 3, 5, 7, 8};
constexpr int kDims[][2] = {{64, 64}, {128, 128}, {8, 8}, {80, 72}, {192, 128}, {24, 264}};
const std::vector<std::pair<int, int>> kLengths[] = {
    {{1, 37}, {1, 0}, {1, 290}}, {{24, 24}, {1, 9}}, {{7, 90}, {0, 20}, {1, 130}}, {{2, 70}, {20, 60}}};
constexpr const char* kHooks[] = {"",
                                  R"(
struct Keys {
  real key_transform(P p, Vec x, int i, Row r) { return x[i] + real(0.25) * weft::pair(x, i) * real(r.pos % 3); }
};
)",
                                  R"(
struct Values {
  real value_transform(P p, Vec x, int i, Row r) { return x[i] + real(0.5) * real(r.head) + real(0.001) * real(r.pos); }
};
)",
                                  R"(
struct Logits {
  real logits_transform(P p, Score c, real s) { return real(3) * weft::tanh(s * real(0.3)); }
};
)"};
constexpr const char* kHookNames[] = {"", "Keys", "Values", "Logits"};

constexpr int kParts = 12;
class LowBitGrid : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Part, LowBitGrid, ::testing::Range(0, kParts));

TEST_P(LowBitGrid, AgreesWithTheReferenceWithinItsBound) {
  const auto rows = testing::pairwise({14, 4, 2, 3, 3, 5, 6, 4, 4, 4, 2, 2}, 3);
  for (size_t i = static_cast<size_t>(GetParam()); i < rows.size(); i += kParts) {
    const std::vector<int>& row = rows[i];
    const unsigned index = static_cast<unsigned>(i) + 1;
    Case c;
    const Stored& stored = kStored[row[0]];
    c.kv_dtype = stored.dtype;
    c.kv_scales = stored.scales;
    c.kv_scale_group = stored.group;
    c.form = kForms[row[1]];
    c.page_size = kPageSizes[row[1]];
    c.layout = row[2] == 0 ? Layout::nhd : Layout::hnd;
    c.q_dtype = kTypes[row[3]];
    c.o_dtype = kTypes[row[4]];
    c.group = kGroups[row[5]];
    c.head_dim_qk = kDims[row[6]][0];
    c.head_dim_vo = kDims[row[6]][1];
    c.lengths = kLengths[row[7]];
    c.mask = row[8] % 3 == 0 ? Mask::none : Mask::causal;
    if (row[8] == 2) c.window = 20;
    if (row[8] == 3) c.sinks = 4;
    c.variant.name = kHookNames[row[9]];
    c.variant.text = kHooks[row[9]];
    c.kv_heads = row[10] + 1;
    c.strided = row[11] == 1;
    c.seed = index;
    Problem problem(c);
    problem.reference();
    for (const Target* target : testing::targets_of_case(index))
      for (const DType compute : target->compute_types(problem.spec())) {
        SCOPED_TRACE("case " + std::to_string(index) + " " + target->name() + " products in " +
                     std::string(to_string(compute)) + " hook " + kHookNames[row[9]] + ": " + to_string(c));
        AttentionSpec spec = problem.spec();
        spec.compute = compute;
        const AttentionKernel kernel = build_on(*target, spec);
        const Plan plan = kernel.plan(index % 2 == 0 ? problem.input(3) : problem.input(2, PlanMode::fixed_split, 64));
        problem.poison_outputs();
        run_on(*target, kernel, plan, problem.tensors());
        ASSERT_EQ(problem.compare(compute), "");
      }
  }
}

// The same request by lists of blocks, and with its first three pages as a level of their own.
TEST(LowBitForms, BlocksAndLevelsAgreeWithTheReference) {
  for (const DType dtype : {DType::int8, DType::int4, DType::fp8_e5m2}) {
    Case c;
    c.kv_dtype = dtype;
    c.kv_scales = KvScales::token_group;
    c.kv_scale_group = 4;
    c.group = 3;
    c.kv_heads = 2;
    c.mask = Mask::causal;
    c.lengths = {{3, 135}};
    Problem problem(c);
    problem.reference();
    for (const Target* target : testing::targets())
      for (const bool blocks : {false, true}) {
        AttentionSpec spec = problem.spec();
        PlanInput input = problem.input(2);
        const PageTableView pages = input.pages;
        const BlockLists lists = blocks_from_page_table(pages, input.qo_indptr);
        const BlockSparse view = lists.view();
        const int32_t shared_indptr[] = {0, 3}, shared_last[] = {pages.page_size},
                      own_indptr[] = {0, static_cast<int32_t>(pages.kv_page_indices.size()) - 3};
        PageTableView shared = pages, own = pages;
        shared.kv_page_indptr = shared_indptr;
        shared.kv_page_indices = pages.kv_page_indices.first(3);
        shared.kv_last_page_len = shared_last;
        own.kv_page_indptr = own_indptr;
        own.kv_page_indices = pages.kv_page_indices.subspan(3);
        const Level levels[] = {{input.qo_indptr, shared}, {input.qo_indptr, own}};
        input.pages = {};
        if (blocks) {
          spec.kv_form = KvForm::block_sparse;
          input.blocks = &view;
        } else {
          input.levels = levels;
        }
        const AttentionKernel kernel = build_on(*target, spec);
        problem.poison_outputs();
        run_on(*target, kernel, kernel.plan(input), problem.tensors());
        EXPECT_EQ(problem.compare(kernel.impl().compute), "") << target->name() << " " << blocks << " " << to_string(c);
      }
  }
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + " " + error.what();
  }
  return "nothing was refused";
}

TEST(LowBitRefusal, OfSpecsNamesWhatIsAllowed) {
  const auto built = [](DType dtype, KvScales scales, int group, std::optional<DType> compute = {}) {
    return refusal([&] {
      AttentionSpec spec{.kv_dtype = dtype, .compute = compute, .kv_scales = scales, .kv_scale_group = group};
      build(spec, Device::cpu(), {.isa = Isa::plain});
    });
  };
  const auto names = [](const std::string& text, const std::string& code, const std::string& word) {
    EXPECT_TRUE(text.starts_with(code) && text.find(word) != text.npos) << text;
  };
  names(built(DType::int8, KvScales::none, 0), "invalid_argument", "need scales");
  names(built(DType::bf16, KvScales::token, 0), "invalid_argument", "kv_scales");
  names(built(DType::int8, KvScales::token_group, 0), "invalid_argument", "kv_scale_group");
  names(built(DType::int8, KvScales::token, 4), "invalid_argument", "kv_scale_group");
  names(built(DType::int32, KvScales::none, 0), "unsupported", "kv_dtype");
  names(built(DType::int8, static_cast<KvScales>(9), 0), "invalid_argument", "kv_scales = 9");
  names(built(DType::fp8_e4m3, KvScales::none, 0, DType::int8), "invalid_argument", "compute");
  names(built(DType::int8, KvScales::token, 0, DType::int8), "unsupported", "avx512");
  names(refusal([] {
          const AttentionSpec spec{
              .q_dtype = DType::bf16, .kv_dtype = DType::int8, .compute = DType::bf16, .kv_scales = KvScales::token};
          compute_type(spec, Isa::avx512_bf16);
        }),
        "unsupported", "bf16 of KV int8");
  names(refusal([] {
          build({.kv_dtype = DType::int8, .kv_form = KvForm::latent, .kv_scales = KvScales::token}, Device::cpu());
        }),
        "unsupported", "key and value at once");
}

TEST(LowBitRefusal, OfTensorsNamesTheArgument) {
  Case c;
  c.kv_dtype = DType::int4;
  c.kv_scales = KvScales::token;
  c.kv_heads = 2;
  c.lengths = {{1, 40}};
  Problem problem(c);
  const AttentionKernel kernel = build(problem.spec(), Device::cpu());
  const Plan plan = kernel.plan(problem.input(1));
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  const auto refused = [&](const std::string& code, const std::string& word,
                           const std::function<void(AttentionTensors&)>& spoil) {
    AttentionTensors t = problem.tensors();
    spoil(t);
    const std::string text = refusal([&] { kernel.run(plan, t, workspace); });
    EXPECT_TRUE(text.starts_with(code) && text.find(word) != text.npos) << text;
  };
  refused("invalid_argument", "k_scale", [](auto& t) { t.kv.k_scale = {}; });
  refused("invalid_shape", "v_scale", [](auto& t) { t.kv.v_scale = t.kv.v_scale.slice(2, 0, 1); });
  refused("invalid_shape", "v_scale", [](auto& t) { t.kv.v_scale = t.kv.v_scale.slice(0, 0, 1); });
  refused("invalid_dtype", "k_scale",
          [](auto& t) { t.kv.k_scale = TensorView(t.kv.k_scale.data(), DType::bf16, t.kv.k_scale.shape()); });
  refused("invalid_stride", "begin on a byte", [](auto& t) {
    std::vector<int64_t> strides(t.kv.k.strides().begin(), t.kv.k.strides().end());
    ++strides[1];
    t.kv.k = TensorView(t.kv.k.data(), DType::int4, t.kv.k.shape(), strides);
  });

  AttentionSpec groups = problem.spec();
  groups.kv_scales = KvScales::token_group;
  groups.kv_scale_group = 3;
  const AttentionKernel other = build(groups, Device::cpu());
  const std::string text = refusal([&] { other.run(plan, problem.tensors(), workspace); });
  EXPECT_NE(text.find("kv_scale_group = 3"), text.npos) << text;
}

// The first 4 and the last 11 of 37 keys are seen: what lies between is hidden within a tile.
TEST(LowBitNan, InScalesOfHiddenTokensReachesNothing) {
  for (const Target* target : testing::targets())
    for (const DType dtype : {DType::int8, DType::fp8_e4m3}) {
      Case c;
      c.kv_dtype = dtype;
      c.kv_scales = KvScales::token;
      c.form = KvForm::ragged;
      c.sinks = 4;
      c.lengths = {{1, 37}};
      Problem problem(c);
      problem.reference();
      const AttentionTensors t = problem.tensors();
      ASSERT_TRUE(std::isnan(t.kv.v_scale.as<float>()[15]) && !std::isnan(t.kv.v_scale.as<float>()[26]));
      const AttentionKernel kernel = build_on(*target, problem.spec());
      run_on(*target, kernel, kernel.plan(problem.input(1)), t);
      EXPECT_EQ(problem.compare(kernel.impl().compute), "") << target->name();
    }
}

// Products of the longest rows with the largest numbers: 576 * 127 * 32,512 would not fit the sums' 32 bits.
TEST(LowBitForms, SumsOfTheLongestRowsFit) {
  for (const Target* target : testing::targets()) {
    Case c;
    c.kv_dtype = DType::int8;
    c.kv_scales = KvScales::tensor;
    c.form = KvForm::ragged;
    c.head_dim_qk = 576;
    c.lengths = {{1, 40}, {60, 40}};
    Problem problem(c);
    const AttentionTensors t = problem.tensors();
    for (int64_t i = 0; i < t.q.size(); ++i) t.q.as<float>()[i] = 1;
    for (int64_t token = 0; token < 80; ++token)
      std::memset(t.kv.k.as<char>() + token * 576, token % 2 == 0 ? 127 : 0, 576);
    problem.reference();
    const AttentionKernel kernel = build_on(*target, problem.spec());
    run_on(*target, kernel, kernel.plan(problem.input(1)), t);
    EXPECT_EQ(problem.compare(kernel.impl().compute), "") << target->name();
  }
}

// A NaN in a query reaches its own row; one in a scale every row that attends the token.
TEST(LowBitNan, StaysWithItsRow) {
  for (const Target* target : testing::targets()) {
    Case c;
    c.kv_dtype = DType::int8;
    c.kv_scales = KvScales::token;
    c.group = 3;
    c.lengths = {{2, 70}, {1, 300}};
    Problem problem(c);
    const AttentionKernel kernel = build_on(*target, problem.spec());
    const AttentionTensors t = problem.tensors();
    t.q.as<float>()[c.head_dim_qk] = std::numeric_limits<float>::quiet_NaN();  // head 1 of row 0
    run_on(*target, kernel, kernel.plan(problem.input(2)), t);
    for (int64_t state = 0; state < 9; ++state)
      for (int64_t d = 0; d < c.head_dim_vo; ++d)
        ASSERT_EQ(std::isnan(t.o.as<float>()[state * c.head_dim_vo + d]), state == 1) << target->name() << state;
  }
}

// Beside integers a query is scaled by its largest magnitude: one that is not finite must not reach its neighbours.
TEST(LowBitNan, AQueryThatIsNotFiniteLeavesOtherRowsTheirBits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Target* target : testing::targets())
    for (const DType kv_dtype : {DType::int8, DType::int4}) {
      Case c;
      c.kv_dtype = kv_dtype;
      c.kv_scales = KvScales::token;
      c.group = 3;
      c.kv_heads = 2;
      c.lengths = {{2, 70}, {1, 300}, {40, 90}};  // products of rows as stored, and packed
      Problem problem(c);
      const AttentionTensors t = problem.tensors();
      const int64_t states = t.o.shape(0) * t.o.shape(1), dim = c.head_dim_vo;
      for (const DType compute : target->compute_types(problem.spec())) {
        AttentionSpec spec = problem.spec();
        spec.compute = compute;
        const AttentionKernel kernel = build_on(*target, spec);
        const Plan plan = kernel.plan(problem.input(2));
        run_on(*target, kernel, plan, t);
        const std::string clean = problem.outputs();
        for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()})
          for (const int64_t state : {int64_t{1}, int64_t{14}, int64_t{18}, states - 2}) {
            float& q = t.q.as<float>()[state * c.head_dim_qk + 5];
            const float before = q;
            q = bad;
            problem.poison_outputs();
            run_on(*target, kernel, plan, t);
            q = before;
            const std::string bytes = problem.outputs();
            const std::string what = target->name() + " " + std::string(to_string(kv_dtype)) + " " +
                                     std::string(to_string(compute)) + " " + std::to_string(bad);
            const size_t begin = static_cast<size_t>(state * dim) * sizeof(float), width = dim * sizeof(float);
            for (int64_t d = 0; d < dim; ++d)
              ASSERT_FALSE(std::isfinite(t.o.as<float>()[state * dim + d])) << what << " state " << state;
            ASSERT_FALSE(std::isfinite(t.lse.as<float>()[state])) << what;
            ASSERT_EQ(bytes.substr(0, begin), clean.substr(0, begin)) << what;
            const size_t o_end = static_cast<size_t>(states * dim) * sizeof(float), end = begin + width;
            ASSERT_EQ(bytes.substr(end, o_end - end), clean.substr(end, o_end - end)) << what;
          }
      }
    }
}

}  // namespace
}  // namespace weft::test::low_bit
