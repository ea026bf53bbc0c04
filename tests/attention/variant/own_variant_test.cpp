#include "attention/params.h"
#include "tests/attention/variant/leaf_harness.h"
#include "weft/error.h"

namespace weft::test {
namespace {

// The example of docs/variants.md.
Variant cap_and_bias() {
  return {.name = "CapAndBias",
          .text = R"(struct CapAndBias {
  static constexpr bool use_softmax = true;
  real logits_transform(P p, Score c, real s) { return p.cap * weft::tanh(s / p.cap) + p.bias(c.qo_head, c.kv_idx); }
  bool logits_mask(P p, Score c) { return p.segment(c.batch, c.kv_idx) == p.segment(c.batch, c.qo_idx); }
};
)",
          .scalars = {{.name = "cap"}},
          .tensors = {{.name = "bias", .rank = 2}, {.name = "segment", .dtype = DType::int32, .rank = 2}}};
}

struct CapAndBiasInputs {
  std::vector<float> bias = std::vector<float>(3 * 80);
  std::vector<int> segment = std::vector<int>(2 * 80);
  CapAndBiasInputs() {
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i % 7) * 0.25f;
    for (size_t i = 0; i < segment.size(); ++i) segment[i] = static_cast<int>(i / 9 % 3);
  }
  std::vector<TensorArg> args() const {
    return {{"bias", TensorView(bias.data(), DType::fp32, {3, 80})},
            {"segment", TensorView(segment.data(), DType::int32, {2, 80})}};
  }
  std::optional<double> logit(const Cell& c, double raw) const {
    const size_t base = static_cast<size_t>(c.row.batch) * 80;
    if (segment[base + static_cast<size_t>(c.kv_idx)] != segment[base + static_cast<size_t>(c.row.qo_idx)]) return {};
    return 3 * std::tanh(raw * 0.125 / 3) +
           static_cast<double>(bias[static_cast<size_t>(c.row.qo_head) * 80 + static_cast<size_t>(c.kv_idx)]);
  }
};

TEST(OwnVariant, TransformAndPredicateOverItsTensorsWorkOnEveryTarget) {
  const AttentionSpec spec{.variant = cap_and_bias()};
  validate(spec);
  const CapAndBiasInputs in;
  std::mt19937 random(21);
  for (const Target& target : targets()) {
    SCOPED_TRACE(to_string(target));
    const LeafHandle handle = find_leaf(spec, target.isa);
    EXPECT_EQ(handle.leaf->has_predicate, 1);
    LeafRun run(*handle.leaf, target, pack_params(spec, 0.125f, {{"cap", 3}}, in.args()), rows_of(6, 2, 75, 1));
    const Expected expected = [&](const Cell& c, double raw) { return in.logit(c, raw); };
    run.tile({.num_kv = 64}, expected, random);
    run.tile({.num_kv = 11, .kv_begin = 64, .boundary = true}, expected, random, kNan);
  }
}

TEST(OwnVariant, ItsPredicateIsAndedWithTheSpecsMask) {
  const AttentionSpec spec{.mask = Mask::custom, .variant = cap_and_bias()};
  validate(spec);
  const CapAndBiasInputs in;
  std::vector<uint8_t> mask(2 * 75);
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = i % 5 != 0;
  const std::vector<int64_t> indptr = {0, 0, 150};
  auto tensors = in.args();
  tensors.push_back({"mask", TensorView(mask.data(), DType::uint8, {150})});
  tensors.push_back({"mask_indptr", TensorView(indptr.data(), DType::int64, {3})});
  std::mt19937 random(22);
  const LeafHandle handle = find_leaf(spec, supported_isas().back());
  LeafRun run(*handle.leaf, {supported_isas().back(), DType::fp32}, pack_params(spec, 0.125f, {{"cap", 3}}, tensors),
              rows_of(2, 2, 75, 1));
  run.tile(
      {.num_kv = 75, .boundary = true},
      [&](const Cell& c, double raw) -> std::optional<double> {
        if (mask[static_cast<size_t>(c.row.qo_idx * 75 + c.kv_idx)] == 0) return {};
        return in.logit(c, raw);
      },
      random, kNan);
}

TEST(OwnVariant, InitGivesEachRequestItsOwnState) {
  const AttentionSpec spec{
      .variant = {
          .name = "PerRequest",
          .text =
              "class PerRequest {\n real shift;\n public:\n  void init(P p, Request r) { shift = p.shifts(r.batch); }\n"
              "  real logits_transform(P, Score c, real s) { return s + (c.kv_idx < weft::div_const(c.kv_len, 2) ? "
              "shift : 0); }\n};\n",
          .tensors = {{.name = "shifts"}}}};
  const std::vector<float> shifts = {1.f, -2.f};
  const LeafHandle handle = find_leaf(spec, supported_isas().back());
  auto rows = rows_of(2, 2, 64, 0);
  const auto second = rows_of(2, 2, 64, 1);
  rows.insert(rows.end(), second.begin(), second.end());
  LeafRun run(*handle.leaf, {supported_isas().back(), DType::fp32},
              pack_params(spec, 1.f, {}, {{"shifts", TensorView(shifts.data(), DType::fp32, {2})}}), rows);
  std::mt19937 random(23);
  run.tile(
      {.num_kv = 64},
      [&](const Cell& c, double raw) {
        return raw + (c.kv_idx < 32 ? static_cast<double>(shifts[static_cast<size_t>(c.row.batch)]) : 0);
      },
      random);
}

TEST(OwnVariant, WithoutSoftmaxAndWithoutTransformTheScoreIsTheProbability) {
  const AttentionSpec spec{.variant = {.name = "Linear",
                                       .text = "struct Linear { static constexpr bool use_softmax = false; };\n",
                                       .use_softmax = false}};
  std::mt19937 random(24);
  for (const Target& target : targets()) {
    const LeafHandle handle = find_leaf(spec, target.isa);
    LeafRun run(*handle.leaf, target, pack_params(spec, 0.5f, {}, {}), rows_of(3, 3, 64));
    run.tile(
        {.num_kv = 64}, [](const Cell&, double raw) { return raw * 0.5; }, random);
    run.tile(
        {.num_kv = 40, .boundary = true}, [](const Cell&, double raw) { return raw * 0.5; }, random);
  }
}

TEST(OwnVariant, ASecondLookUpComesFromMemory) {
  const AttentionSpec spec{
      .variant = {.name = "Twice",
                  .text = "struct Twice { real logits_transform(P, Score, real s) { return s + s; } };"}};
  const LeafHandle first = find_leaf(spec, Isa::plain);
  const LeafHandle second = find_leaf(spec, Isa::plain);
  EXPECT_EQ(first.leaf, second.leaf);
  EXPECT_EQ(second.origin, "memory");
}

std::string compile_error(const std::string& text, bool use_softmax = true) {
  const AttentionSpec spec{.variant = {.name = "Wrong", .text = text, .use_softmax = use_softmax}};
  validate(spec);
  try {
    find_leaf(spec, Isa::plain);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::compile_failed);
    return e.what();
  }
  ADD_FAILURE() << "compiled: " << text;
  return {};
}

TEST(OwnVariant, CompilerErrorsShowTheVariantsOwnLine) {
  const std::string message = compile_error(
      "struct Wrong {\n  real logits_transform(P p, Score c, real s) {\n    return s * p.unknown_scalar;\n  }\n};\n");
  EXPECT_NE(message.find("variant Wrong:3"), std::string::npos) << message;
  EXPECT_NE(message.find("unknown_scalar"), std::string::npos) << message;
}

TEST(OwnVariant, AHookThatCannotBeCalledIsNamedAndNeverIgnored) {
  const std::pair<const char*, const char*> cases[] = {
      {"struct Wrong { bool logits_mask(P, int) { return true; } };", "logits_mask"},
      {"struct Wrong { int logits_transform(P, Score, real s) { return 1; } };", "logits_transform"},
      {"struct Wrong { real key_transform(P, Vec x, int i) { return x[i]; } };", "key_transform"},
      {"struct Wrong { real query_transform = 1; };", "query_transform"},
      {"class Wrong { real value_transform(P, Vec x, int i, Row) { return x[i]; } };", "value_transform"},
      {"struct Wrong { void output_transform(P, Vec, int, Row) {} };", "output_transform"},
      {"struct Wrong { void init(P) {} };", "init"},
      {"struct Wrong { static bool leaves_logits(Score) { return true; } };", "leaves_logits"},
      {"struct Wrong { bool leaves_logits(P) { return true; } };", "leaves_logits"},
      {"struct Wrong { static real leaves_logits(P) { return 1; } };", "leaves_logits"}};
  for (const auto& [text, hook] : cases) {
    const std::string message = compile_error(text);
    EXPECT_NE(message.find(std::string("the variant's member ") + hook + " must be public and callable"),
              std::string::npos)
        << message;
  }
}

// What other targets' vectors need not have.
TEST(OwnVariant, HowAVectorIsStoredIsNoPartOfTheLanguage) {
  for (const char* member : {"is_bf16_", "bf16_", "data_", "pairs_", "sum_"}) {
    const std::string message =
        compile_error(std::string("struct Wrong { real key_transform(P, Vec x, int i, Row) { ") + "(void)x." + member +
                      "; return x[i]; } };");
    EXPECT_NE(message.find("private"), std::string::npos) << message;
  }
  for (const char* member : {"is_bf16", "bf16", "data", "pairs"})
    compile_error(std::string("struct Wrong { real key_transform(P, Vec x, int i, Row) { (void)x.") + member +
                  "; return x[i]; } };");
}

TEST(OwnVariant, SoftmaxOfTextAndDeclarationMustAgree) {
  const std::string message = compile_error("struct Wrong { static constexpr bool use_softmax = false; };");
  EXPECT_NE(message.find("Variant::use_softmax is true, but the text"), std::string::npos) << message;
  compile_error("struct Wrong {};", false);
}

}  // namespace
}  // namespace weft::test
