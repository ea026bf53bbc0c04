// The text of a variant is a card's as it stands: every built-in one, and one of each vector hook, compiles behind the
// head that CUDA kernels share. What the hooks compute there is compared on the host machine (tests/simt).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "attention/variant/text.h"
#include "jit/build.h"
#include "jit/nvrtc/toolchain.h"
#include "tests/support/cubins.h"
#include "tests/support/sanitizers.h"

namespace weft::text {
extern const char* const scores;
}  // namespace weft::text

namespace weft {
namespace {

class CudaText : public ::testing::Test {
 protected:
  void SetUp() override {
    const jit::CompilerSearch search = jit::nvrtc_toolchain().find(nullptr);
    if (search.compiler == nullptr) GTEST_SKIP() << "no NVRTC here: " << search.tried << "; " << search.remedy;
  }

  static std::string text_of(const AttentionSpec& spec) {
    const LeafParts parts = leaf_parts(spec);
    return text::scores + leaf_body(parts, "leaf") +
           fmt::format(
               "WEFT_KERNEL(128, 1) void weft_scores(WEFT_PARAM weft::ScoresArgs args) {{\n"
               "  weft::Scores<leaf::P, {}, {}>::run(args);\n}}\n",
               variant_class(parts, "leaf"), mask_class(parts, "leaf"));
  }
  static std::string compile(const AttentionSpec& spec, std::string_view architecture) {
    const jit::Request request{
        .name = spec.variant.name, .text = text_of(spec), .target = jit::nvrtc_target(architecture)};
    const jit::CompilerSearch search = request.target.toolchain->find(nullptr);
    std::string cubin =
        request.target.toolchain->compile(*search.compiler, request, request.target.toolchain->flags(architecture), "");
    weft::testing::count_cubin();
    return cubin;
  }
};

TEST_F(CudaText, OfEveryBuiltInVariantCompilesAsItStands) {
  for (const Variant& variant : {variants::plain(), variants::logits_soft_cap(), variants::alibi(), variants::sigmoid(),
                                 variants::attention_sink(), variants::custom_mask(), variants::custom_mask_packed()}) {
    AttentionSpec spec;
    spec.variant = variant;
    EXPECT_NO_THROW(compile(spec, "sm_90a")) << variant.name;
    if (weft::testing::kUnderSanitizer) return;  // they watch who makes the text, and not the compiler
  }
}

TEST_F(CudaText, OfEveryVectorHookAndFunctionCompilesAsItStands) {
  AttentionSpec spec;
  spec.variant = {.name = "All",
                  .text = R"(struct All {
  real first = 0;
  void init(P p, Request r) { first = real(r.batch); }
  real query_transform(P p, Vec x, int i, Row r) {
    return x[i] * weft::rsqrt(weft::dot(x, x) + p.eps) + weft::pair(x, i);
  }
  real key_transform(P p, Vec x, int i, Row r) { return weft::pair_halves(x, i) * p.table(r.pos, i) + weft::sum(x); }
  real value_transform(P p, Vec x, int i, Row r) { return weft::dot(x, p.table.row(i)) + weft::pair_halves(x, i, 2); }
  real logits_transform(P p, Score c, real s) {
    return weft::sin(s) + weft::cos(s) + weft::log(s) + weft::exp2(s) + weft::sigmoid(s) + weft::tanh(s) + first;
  }
  bool logits_mask(P p, Score c) { return weft::mod_const(c.kv_idx, 3) != weft::div_const(c.qo_idx, 5); }
  real output_transform(P p, Vec x, int i, Row r) { return weft::min(x[i], weft::max(r.lse, weft::infinity())); }
  real lse_transform(P p, Row r) { return weft::clamp(weft::abs(r.lse), real(0), weft::sqrt(real(2))); }
};)",
                  .scalars = {{"eps"}},
                  .tensors = {{"table", DType::fp32, 2}}};
  for (const std::string_view architecture : {"sm_75", "sm_90a"}) EXPECT_NO_THROW(compile(spec, architecture));
}

TEST_F(CudaText, WithAMistakeIsShownByItsOwnLine) {
  AttentionSpec spec;
  spec.variant = {
      .name = "Cap",
      .text = "struct Cap {\n  real logits_transform(P p, Score c, real s) {\n    return cap * s;\n  }\n};"};
  try {
    compile(spec, "sm_80");
    FAIL() << "it compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::compile_failed);
    const std::string what = error.what();
    EXPECT_NE(what.find("variant Cap(3): error: identifier \"cap\" is undefined"), std::string::npos) << what;
    EXPECT_NE(what.find(">   3 |     return cap * s;"), std::string::npos) << what;
    EXPECT_EQ(what.find("weft_scores"), std::string::npos) << what;
  }
}

TEST_F(CudaText, WithAMisspeltHookIsRefused) {
  AttentionSpec spec;
  spec.variant = {.name = "Odd", .text = "struct Odd {\n  real logits_transform(P p, real s) { return s; }\n};"};
  try {
    compile(spec, "sm_80");
    FAIL() << "it compiled";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("must be public and callable as"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft
