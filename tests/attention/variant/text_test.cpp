#include "attention/variant/text.h"

#include <gtest/gtest.h>

#include <set>

#include "attention/cpu/leaf.h"
#include "attention/variant/tokens.h"
#include "device/cpu/cpuid.h"
#include "jit/host/module.h"

namespace weft {
namespace {

Variant own_text() {
  return {.name = "Own",
          .text =
              "struct Own { real logits_transform(P p, Score c, real s) { return s + p.bias(c.qo_head, c.kv_idx); }\n"
              "  real query_transform(P, Vec x, int i, Row) { return x[i] * weft::rsqrt(weft::dot(x, x)); } };\n",
          .tensors = {{.name = "bias", .rank = 2}}};
}

TEST(LeafText, IsTheSameForTheSameSpecAndNothingButTheLeafChangesIt) {
  const AttentionSpec spec{.variant = own_text()};
  const std::string text = leaf_text(spec, Isa::avx2);
  EXPECT_EQ(text, leaf_text(spec, Isa::avx2));
  AttentionSpec other = spec;
  other.q_dtype = DType::bf16;
  other.kv_form = KvForm::ragged;
  other.layout = Layout::hnd;
  other.mask = Mask::causal;
  other.sliding_window = true;
  EXPECT_EQ(text, leaf_text(other, Isa::avx2));
  other.mask = Mask::custom;
  EXPECT_NE(text, leaf_text(other, Isa::avx2));
  other = spec;
  other.variant.tensors[0].rank = 3;
  EXPECT_NE(text, leaf_text(other, Isa::avx2));
}

TEST(LeafText, KnowsHeadDimsWhereVectorsAreChanged) {
  AttentionSpec spec{.variant = own_text()}, scores{.variant = variants::logits_soft_cap()};
  const std::string changes = leaf_text(spec, Isa::avx2), leaves = leaf_text(scores, Isa::avx2);
  for (int AttentionSpec::*dim : {&AttentionSpec::head_dim_qk, &AttentionSpec::head_dim_vo}) {
    spec.*dim = scores.*dim = 256;
    EXPECT_NE(changes, leaf_text(spec, Isa::avx2));
    EXPECT_EQ(leaves, leaf_text(scores, Isa::avx2));
    spec.*dim = scores.*dim = 64;
  }
}

TEST(LeafText, KnowsHeadDimsForEachHookOfVectorsThatAreStored) {
  for (const char* hook : {"query_transform", "key_transform", "value_transform"}) {
    const AttentionSpec spec{
        .head_dim_qk = 128,
        .head_dim_vo = 96,
        .variant = {.name = "Own",
                    .text = std::string("struct Own { real ") + hook + "(P, Vec x, int i, Row) { return x[i]; } };"}};
    EXPECT_EQ(leaf_parts(spec).head_dim_qk, 128) << hook;
    EXPECT_EQ(leaf_parts(spec).head_dim_vo, 96) << hook;
  }
}

TEST(LeafText, ReadsKeysAndValuesInBf16WhereEitherIsChangedAndMultipliedInIt) {
  for (const auto& [hook, is_of_keys_or_values] :
       {std::pair("query_transform", false), {"key_transform", true}, {"value_transform", true}}) {
    AttentionSpec spec{
        .q_dtype = DType::bf16,
        .kv_dtype = DType::bf16,
        .compute = DType::bf16,
        .variant = {.name = "Own",
                    .text = std::string("struct Own { real ") + hook + "(P, Vec x, int i, Row) { return x[i]; } };"}};
    EXPECT_EQ(are_hooks_in_bf16(spec, Isa::avx512_bf16), is_of_keys_or_values) << hook;
    spec.compute = DType::fp32;
    EXPECT_FALSE(are_hooks_in_bf16(spec, Isa::avx512_bf16)) << hook;
  }
}

TEST(LeafText, HoldsTheVariantVerbatimAndIncludesNothing) {
  const std::string text = leaf_text({.mask = Mask::custom_packed, .variant = own_text()}, Isa::avx512);
  EXPECT_NE(text.find("#line 1 \"variant Own\"\n" + own_text().text), std::string::npos);
  EXPECT_NE(text.find(variants::custom_mask_packed().text), std::string::npos);
  EXPECT_EQ(text.find("#include"), std::string::npos);
  EXPECT_EQ(text.find("#pragma once"), std::string::npos);
}

TEST(LeafText, AMaskAsVariantIsTheLeafOfASpecThatNamesIt) {
  EXPECT_EQ(leaf_text({.variant = variants::custom_mask()}, Isa::avx2), leaf_text({.mask = Mask::custom}, Isa::avx2));
  EXPECT_EQ(leaf_text({.variant = variants::causal()}, Isa::avx2), leaf_text({}, Isa::avx2));
}

TEST(LeafText, CompilesForEveryInstructionSet) {
  for (const Isa isa : built_isas()) {
    const auto module = jit::host_module({.name = "leaf Own",
                                          .text = leaf_text({.mask = Mask::custom_packed, .variant = own_text()}, isa),
                                          .target = jit::host_target(isa),
                                          .flags = leaf_flags()})
                            .module;
    const auto* leaf = static_cast<const abi::Leaf*>(module->symbol("weft_leaf"));
    ASSERT_NE(leaf, nullptr);
    EXPECT_EQ(leaf->version, abi::kLeafVersion);
    EXPECT_EQ(leaf->has_predicate, 1);
    EXPECT_EQ(leaf->key, nullptr);
    EXPECT_NE(leaf->query, nullptr);
  }
}

TEST(BuiltInLeaves, CoverEveryVariantAndMaskOnEveryInstructionSetWithoutACompiler) {
  int found = 0;
  for (const Isa isa : built_isas())
    for (const auto& make :
         {variants::plain, variants::logits_soft_cap, variants::alibi, variants::sigmoid, variants::attention_sink})
      for (const Mask mask : {Mask::none, Mask::causal, Mask::custom, Mask::custom_packed}) {
        AttentionSpec spec{.mask = mask, .sliding_window = true, .variant = make()};
        spec.variant.intervals = {{.upper = {{.kv_len = true, .constant = -1}}}};
        const LeafHandle handle = find_leaf(spec, isa);
        EXPECT_EQ(handle.origin, "built-in");
        EXPECT_EQ(handle.leaf->version, abi::kLeafVersion);
        EXPECT_EQ(handle.leaf->use_softmax, spec.variant.use_softmax);
        EXPECT_EQ(handle.leaf->has_predicate, mask == Mask::custom || mask == Mask::custom_packed);
        ++found;
      }
  EXPECT_EQ(found, built_isas().size() * 20);
}

TEST(BuiltInLeaves, OfEachInstructionSetAreTheirOwnCode) {
  std::set<abi::ScoreFn> functions;
  for (const Isa isa : built_isas())
    for (const Mask mask : {Mask::none, Mask::custom, Mask::custom_packed})
      functions.insert(find_leaf({.mask = mask, .variant = variants::alibi()}, isa).leaf->score);
  EXPECT_EQ(functions.size(), built_isas().size() * 3);
}

TEST(CompiledLeaves, OfEachInstructionSetAreTheirOwnCodeEachTime) {
  const AttentionSpec spec{.variant = own_text()};
  std::set<const abi::Leaf*> leaves;
  for (int round = 0; round < 2; ++round)
    for (const Isa isa : supported_isas()) leaves.insert(find_leaf(spec, isa).leaf);
  EXPECT_EQ(leaves.size(), supported_isas().size());
}

TEST(BuiltInLeaves, OfPlainAttentionLeaveScoresToTheCore) {
  for (const Isa isa : built_isas()) EXPECT_EQ(find_leaf({.mask = Mask::causal}, isa).leaf->score, nullptr);
}

TEST(Words, AreFoundOutsideCommentsAndStrings) {
  EXPECT_TRUE(mentions("return p.cap;", "cap"));
  EXPECT_FALSE(mentions("return p.capped; // cap\n/* cap */ \"cap\"", "cap"));
  EXPECT_TRUE(mentions("x = 1'000; cap", "cap"));
  EXPECT_FALSE(mentions("", "cap"));
}

}  // namespace
}  // namespace weft
