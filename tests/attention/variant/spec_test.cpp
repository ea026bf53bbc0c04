#include <gtest/gtest.h>

#include "attention/cpu/leaf.h"
#include "device/cpu/cpuid.h"
#include "weft/error.h"

namespace weft::test::spec {
namespace {

Variant own(std::string text = "struct Own { real logits_transform(P, Score, real s) { return s; } };") {
  return {.name = "Own", .text = std::move(text)};
}

struct Wrong {
  const char* what;
  AttentionSpec spec;
  ErrorCode code;
  const char* says;  // part of the message
};

template <class F>
AttentionSpec with(F change) {
  AttentionSpec spec;
  spec.variant = own();
  change(spec);
  return spec;
}

TEST(Spec, EveryMistakeIsRefusedWithItsFieldAndARemedy) {
  using enum ErrorCode;
  const std::vector<Wrong> cases = {
      {"q type", with([](auto& s) { s.q_dtype = DType::int8; }), unsupported, "q_dtype = int8"},
      {"kv type", with([](auto& s) { s.kv_dtype = DType::fp64; }), unsupported, "kv_dtype"},
      {"integers without scales", with([](auto& s) { s.kv_dtype = DType::int8; }), invalid_argument,
       "kv_scales = none"},
      {"scales of fp32", with([](auto& s) { s.kv_scales = KvScales::token; }), invalid_argument, "kv_scales = token"},
      {"latent rows of bytes", with([](auto& s) {
         s.kv_form = KvForm::latent;
         s.kv_dtype = DType::fp8_e4m3;
       }),
       unsupported, "kv_form = latent"},
      {"o type", with([](auto& s) { s.o_dtype = DType::fp64; }), unsupported, "supported fp32, fp16, bf16"},
      {"dim 60", with([](auto& s) { s.head_dim_qk = 60; }), unsupported, "pad the head with zeros to 64"},
      {"dim 0", with([](auto& s) { s.head_dim_vo = 0; }), unsupported, "head_dim_vo = 0"},
      {"dim 584", with([](auto& s) { s.head_dim_vo = 584; }), unsupported, "8 to 576"},
      {"mask of blocks", with([](auto& s) { s.kv_form = KvForm::block_sparse, s.mask = Mask::custom; }), unsupported,
       "bits of their blocks"},
      {"values longer than latent keys", with([](auto& s) {
         s.kv_form = KvForm::latent;
         s.head_dim_vo = s.head_dim_qk + 8;
       }),
       invalid_argument, "head_dim_vo"},
      {"mask value", with([](auto& s) { s.mask = static_cast<Mask>(9); }), invalid_argument, "mask = 9"},
      {"layout value", with([](auto& s) { s.layout = static_cast<Layout>(5); }), invalid_argument, "layout = 5"},
      {"name without text", with([](auto& s) { s.variant.text = ""; }), invalid_argument, "give both"},
      {"text without name", with([](auto& s) { s.variant.name = ""; }), invalid_argument, "give both"},
      {"class of another name", with([](auto& s) { s.variant.name = "Other"; }), invalid_argument, "struct Other"},
      {"name of the class in a comment only", with([](auto& s) { s.variant = own("// struct Own\nstruct Owner {};"); }),
       invalid_argument, "no class of this name"},
      {"include", with([](auto& s) { s.variant = own("#include <cmath>\nstruct Own {};"); }), invalid_argument,
       "weft::"},
      {"zero byte", with([](auto& s) { s.variant.text += '\0'; }), invalid_argument, "zero byte"},
      {"misspelt hook",
       with([](auto& s) { s.variant = own("struct Own { real logit_transform(P, Score, real s) { return s; } };"); }),
       invalid_argument, "did you mean 'logits_transform'"},
      {"misspelt mask",
       with([](auto& s) { s.variant = own("struct Own { bool logit_mask(P, Score) { return true; } };"); }),
       invalid_argument, "did you mean 'logits_mask'"},
      {"scalar name", with([](auto& s) { s.variant.scalars = {{.name = "2cap"}}; }), invalid_argument, "is not a name"},
      {"keyword", with([](auto& s) { s.variant.scalars = {{.name = "float"}}; }), invalid_argument, "reserved"},
      {"sm_scale", with([](auto& s) { s.variant.scalars = {{.name = "sm_scale"}}; }), invalid_argument, "reserved"},
      {"weft name", with([](auto& s) { s.variant.scalars = {{.name = "weft_load"}}; }), invalid_argument, "reserved"},
      {"twice", with([](auto& s) {
         s.variant.scalars = {{.name = "a"}};
         s.variant.tensors = {{.name = "a"}};
       }),
       invalid_argument, "declares 'a' twice"},
      {"rank 0", with([](auto& s) { s.variant.tensors = {{.name = "a", .rank = 0}}; }), invalid_argument, "rank 0"},
      {"rank 5", with([](auto& s) { s.variant.tensors = {{.name = "a", .rank = 5}}; }), invalid_argument, "1 to 4"},
      {"tensor type", with([](auto& s) { s.variant.tensors = {{.name = "a", .dtype = DType::fp16}}; }), invalid_dtype,
       "fp16"},
      {"default of an integer", with([](auto& s) {
         s.variant.scalars = {{"a", ScalarKind::integer, 1.5}};
       }),
       invalid_argument, "integer"},
      {"three intervals", with([](auto& s) { s.variant.intervals.resize(3); }), unsupported, "at most 2"},
      {"bound without scalar", with([](auto& s) {
         s.variant.scalars = {{"window", ScalarKind::integer}};
         s.variant.intervals = {{.lower = {{.scalar = "windov"}}}};
       }),
       invalid_argument, "did you mean 'window'"},
      {"bound of a real", with([](auto& s) {
         s.variant.scalars = {{.name = "window"}};
         s.variant.intervals = {{.lower = {{.scalar = "window"}}}};
       }),
       invalid_argument, "ScalarKind::integer"},
      {"sign", with([](auto& s) { s.variant.intervals = {{.upper = {{.q_pos = true, .scalar_sign = 2}}}}; }),
       invalid_argument, "scalar_sign 2"},
      {"too many bounds", with([](auto& s) {
         s.variant.intervals.resize(1);
         for (int i = 0; i < 7; ++i) s.variant.intervals[0].upper.push_back({.q_pos = true, .constant = i});
       }),
       unsupported, "7 bounds"},
      {"name of the custom mask", with([](auto& s) {
         s.mask = Mask::custom;
         s.variant.tensors = {{.name = "mask"}};
       }),
       invalid_argument, "rename it"},
      {"two custom masks", with([](auto& s) {
         s.mask = Mask::custom;
         s.variant = variants::custom_mask_packed();
       }),
       invalid_argument, "two custom masks"},
      {"window as a real", with([](auto& s) {
         s.sliding_window = true;
         s.variant.scalars = {{.name = "window_left"}};
       }),
       invalid_argument, "window_left"},
      {"softmax without text", with([](auto& s) { s.variant = {.use_softmax = false}; }), invalid_argument, "no text"}};
  for (const Wrong& wrong : cases) {
    try {
      validate(wrong.spec);
      ADD_FAILURE() << wrong.what << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), wrong.code) << wrong.what << ": " << e.what();
      EXPECT_NE(std::string(e.what()).find(wrong.says), std::string::npos) << wrong.what << ": " << e.what();
    }
  }
}

TEST(Spec, BuiltInVariantsAndHelpersOfAHooksNameAreAccepted) {
  for (const auto& make :
       {variants::plain, variants::logits_soft_cap, variants::alibi, variants::sigmoid, variants::causal,
        variants::sliding_window, variants::custom_mask, variants::custom_mask_packed})
    EXPECT_NO_THROW(validate({.mask = Mask::causal, .sliding_window = true, .variant = make()}));
  EXPECT_NO_THROW(validate({.variant = own("struct Own { bool logits_mask_left(P, Score) { return true; }\n"
                                           "bool logits_mask(P p, Score c) { return logits_mask_left(p, c); } };")}));
  EXPECT_NO_THROW(validate({.head_dim_qk = 576, .head_dim_vo = 8}));
}

TEST(Spec, ComputesInWhatItNamesOrSaysWhyNot) {
  AttentionSpec spec{.q_dtype = DType::bf16, .kv_dtype = DType::bf16, .compute = DType::bf16};
  EXPECT_NO_THROW(validate(spec));
  EXPECT_EQ(compute_type(spec, Isa::avx512_bf16), DType::bf16);
  EXPECT_THROW(compute_type(spec, Isa::avx512), Error);
  spec.compute = DType::fp32;
  EXPECT_EQ(compute_type(spec, Isa::avx512_bf16), DType::fp32);
  spec.compute = DType::fp16;
  EXPECT_THROW(validate(spec), Error);
  EXPECT_THROW(validate({.q_dtype = DType::fp32, .kv_dtype = DType::bf16, .compute = DType::bf16}), Error);
}

TEST(Spec, ComputesInBf16OnlyWhereBothSidesAreAndTheMachineMultipliesItFast) {
  const AttentionSpec both{.q_dtype = DType::bf16, .kv_dtype = DType::bf16};
  EXPECT_EQ(compute_type(both, Isa::avx512_bf16), is_bf16_dot_fast() || has_bf16_tiles() ? DType::bf16 : DType::fp32);
  // Tiles take 32 elements of a key, and few rows are multiplied in pairs where a hook has made it.
  const AttentionSpec narrow{.q_dtype = DType::bf16, .kv_dtype = DType::bf16, .head_dim_qk = 80};
  const AttentionSpec hooked{
      .q_dtype = DType::bf16,
      .kv_dtype = DType::bf16,
      .variant = own("struct Own { real key_transform(P, Vec x, int i, Row) { return x[i]; } };")};
  for (const AttentionSpec& spec : {narrow, hooked})
    EXPECT_EQ(compute_type(spec, Isa::avx512_bf16), is_bf16_dot_fast() ? DType::bf16 : DType::fp32);
  EXPECT_EQ(compute_type(both, Isa::avx512), DType::fp32);
  EXPECT_EQ(compute_type({.q_dtype = DType::fp32, .kv_dtype = DType::bf16}, Isa::avx512_bf16), DType::fp32);
  EXPECT_EQ(compute_type({.q_dtype = DType::bf16, .kv_dtype = DType::fp16}, Isa::avx512_bf16), DType::fp32);
}

TEST(Spec, IntervalsOfMaskWindowAndVariantAreIntersected) {
  EXPECT_TRUE(combined_intervals({}).empty());
  AttentionSpec spec{.mask = Mask::causal, .sliding_window = true};
  auto intervals = combined_intervals(spec);
  ASSERT_EQ(intervals.size(), 1u);
  EXPECT_EQ(intervals[0].upper, variants::causal().intervals[0].upper);
  EXPECT_EQ(intervals[0].lower, variants::sliding_window().intervals[0].lower);
  // Sinks or a window: each of the two keeps the causal bound, written once.
  spec.sliding_window = false;
  spec.variant = own();
  spec.variant.intervals = {{.upper = {{.constant = 4}}},
                            {.lower = {{.q_pos = true, .constant = -100}}, .upper = {{.q_pos = true, .constant = 1}}}};
  intervals = combined_intervals(spec);
  ASSERT_EQ(intervals.size(), 2u);
  EXPECT_EQ(intervals[0].upper.size(), 2u);
  EXPECT_EQ(intervals[1].upper.size(), 1u);
  spec.mask = Mask::none;
  EXPECT_EQ(combined_intervals(spec), spec.variant.intervals);
}

}  // namespace
}  // namespace weft::test::spec
