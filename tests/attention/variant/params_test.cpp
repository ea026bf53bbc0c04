#include "attention/params.h"

#include <gtest/gtest.h>

#include <limits>

#include "attention/cpu/leaf.h"
#include "weft/error.h"

namespace weft {
namespace {

const AttentionSpec& spec() {
  static const AttentionSpec s{
      .sliding_window = true,
      .variant = {.name = "Own",
                  .text =
                      "struct Own { real logits_transform(P p, Score c, real s) { return s * p.gain + p.bias(c.batch, "
                      "c.kv_idx) + real(p.shift); } };",
                  .scalars = {{.name = "gain"}, {"shift", ScalarKind::integer, 7}, {"prefix", ScalarKind::integer}},
                  .tensors = {{.name = "bias", .rank = 2}},
                  .intervals = {{.upper = {{.scalar = "prefix"}}}}}};
  return s;
}
const std::vector<float> kBias(64);
std::vector<TensorArg> bias() { return {{"bias", TensorView(kBias.data(), DType::fp32, {4, 16})}}; }

TEST(Params, SlotsFollowTheDeclarationsWithStridesAndDefaults) {
  const auto slots = pack_params(spec(), 0.25f, {{"gain", 2.5}}, bias());
  ASSERT_EQ(slots.size(), 6u);
  EXPECT_EQ(slots[0].real, 0.25);
  EXPECT_EQ(slots[1].real, 2.5);
  EXPECT_EQ(slots[2].integer, 7);
  EXPECT_EQ(slots[3].pointer, kBias.data());
  EXPECT_EQ(slots[4].integer, 16);
  EXPECT_EQ(slots[5].integer, 1);
}

TEST(Params, ScalarsThatOnlyIntervalsNameMayBeGivenAndAreNotNeeded) {
  EXPECT_EQ(declarations(spec()).scalars.size(), 2u);
  EXPECT_EQ(pack_params(spec(), 1.f, {{"gain", 1}, {"prefix", 3}, {"window_left", 128}}, bias()).size(), 6u);
  EXPECT_TRUE(declarations({.sliding_window = true}).scalars.empty());
}

TEST(Params, AMaskAddsItsTensorsBehindTheVariants) {
  AttentionSpec masked = spec();
  masked.mask = Mask::custom;
  const auto declared = declarations(masked);
  ASSERT_EQ(declared.tensors.size(), 3u);
  EXPECT_EQ(declared.tensors[1].name, "mask");
  EXPECT_EQ(declared.tensors[2].name, "mask_indptr");
}

TEST(Params, EveryMistakeIsRefusedWithTheNameAndARemedy) {
  const void* odd = reinterpret_cast<const char*>(kBias.data()) + 1;
  using enum ErrorCode;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int64_t> spread = {16, 2};
  const std::vector<int64_t> shape = {4, 8};
  struct Wrong {
    std::vector<ScalarArg> scalars;
    std::vector<TensorArg> tensors;
    ErrorCode code;
    const char* says;
    float sm_scale = 1.f;
  };
  const std::vector<Wrong> cases = {
      {{}, bias(), invalid_argument, "scalar 'gain' is missing"},
      {{{"gain", 1}}, {}, invalid_argument, "tensor 'bias' is missing"},
      {{{"gain", 1}, {"gian", 1}}, bias(), invalid_argument, "did you mean 'gain'"},
      {{{"gain", 1}, {"gain", 2}}, bias(), invalid_argument, "given twice"},
      {{{"gain", static_cast<double>(nan)}}, bias(), invalid_argument, "NaN"},
      {{{"gain", -1e-39}}, bias(), invalid_argument, "scalar 'gain' = -1e-39: kernels have floats"},
      {{{"gain", 1}, {"shift", 1.5}}, bias(), invalid_argument, "scalar 'shift' = 1.5"},
      {{{"gain", 1}, {"shift", 3e9}}, bias(), invalid_argument, "32 bits"},
      {{{"gain", 1}, {"prefix", 0.5}}, bias(), invalid_argument, "scalar 'prefix'"},
      {{{"gain", 1}, {"bias", 1}}, bias(), invalid_argument, "given as a scalar"},
      {{{"gain", 1}}, {{"gain", bias()[0].value}}, invalid_argument, "given as a tensor"},
      {{{"gain", 1}}, {bias()[0], {"biass", bias()[0].value}}, invalid_argument, "did you mean 'bias'"},
      {{{"gain", 1}}, {{"bias", TensorView(kBias.data(), DType::int32, {4, 16})}}, invalid_dtype, "declares fp32"},
      {{{"gain", 1}}, {{"bias", TensorView(kBias.data(), DType::fp32, {64})}}, invalid_shape, "rank 2"},
      {{{"gain", 1}}, {{"bias", TensorView(kBias.data(), DType::fp32, shape, spread)}}, invalid_stride, "stride 2"},
      {{{"gain", 1}}, {{"bias", TensorView(nullptr, DType::fp32, {4, 16})}}, invalid_argument, "no data"},
      {{{"gain", 1}},
       {{"bias", TensorView(odd, DType::fp32, {4, 16})}},
       invalid_stride,
       "aligned to its elements of 4"},
      {{{"gain", 1}},
       {{"bias", TensorView(kBias.data(), DType::fp32, {4, 16}, Device::cuda())}},
       invalid_device,
       "bias"},
      {{{"gain", 1}}, bias(), invalid_argument, "sm_scale", nan}};
  for (const Wrong& wrong : cases) {
    try {
      pack_params(spec(), wrong.sm_scale, wrong.scalars, wrong.tensors);
      ADD_FAILURE() << "accepted; expected: " << wrong.says;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), wrong.code) << e.what();
      EXPECT_NE(std::string(e.what()).find(wrong.says), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace weft
