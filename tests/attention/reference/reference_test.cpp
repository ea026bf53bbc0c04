#include "attention/reference/reference.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "tests/attention/reference/batch.h"

namespace weft {
namespace {

using namespace testing;

uint16_t bf16(float x) { return static_cast<uint16_t>((std::bit_cast<uint32_t>(x) + 0x8000) >> 16); }

TEST(Reference, AgreesWithTheFormulaAndItsMasksAreBottomRight) {
  Batch batch;
  batch.spec.mask = Mask::causal;
  batch.spec.sliding_window = true;
  const ReferenceResult result = batch.run();
  for (int r = 0; r < 2; ++r)
    for (int i = 0; i < (r == 0 ? 3 : 2); ++i)
      for (int h = 0; h < kHeads; ++h) {
        const int pos = (r == 0 ? 6 : 3) + i;
        double lse = 0;
        const auto o = batch.by_hand(
            r, i, h, [&](int t) { return t <= pos && t >= pos - 2; }, &lse);
        const size_t row = static_cast<size_t>((batch.qo_indptr[static_cast<size_t>(r)] + i) * kHeads + h);
        EXPECT_NEAR(result.lse[row], lse, 1e-12);
        for (size_t d = 0; d < kDimVo; ++d) EXPECT_NEAR(result.o[row * kDimVo + d], o[d], 1e-12);
      }
}

TEST(Reference, IsTheSameForEveryFormAndLayout) {
  Batch batch;
  batch.spec.mask = Mask::causal;
  const ReferenceResult ragged = batch.run();
  for (const KvForm form : {KvForm::ragged, KvForm::padded, KvForm::paged})
    for (const Layout layout : {Layout::nhd, Layout::hnd}) {
      batch.spec.kv_form = form;
      batch.spec.layout = layout;
      const ReferenceResult other = batch.run();
      EXPECT_EQ(other.o, ragged.o);
      EXPECT_EQ(other.lse, ragged.lse);
    }
}

TEST(Reference, ReadsHalfPrecisionTypes) {
  Batch batch;
  const ReferenceResult want = batch.run();
  std::vector<uint16_t> q;
  for (const float x : batch.q) q.push_back(bf16(x));
  AttentionTensors t = batch.tensors();
  t.q = TensorView(q.data(), DType::bf16, {5, kHeads, kDim});
  EXPECT_EQ(attention_reference(batch.spec, batch.input(), t).o, want.o);
  // fp16: 1, -2, the smallest subnormal, the largest number.
  const std::vector<uint16_t> halves = {0x3c00, 0xc000, 0x0001, 0x7bff};
  std::vector<uint16_t> values(14 * kKvHeads * kDimVo);
  for (size_t i = 0; i < values.size(); ++i) values[i] = halves[i % 4];
  t.kv.v = TensorView(values.data(), DType::fp16, {14, kKvHeads, kDimVo});
  const auto o = attention_reference(batch.spec, batch.input(), t).o;
  EXPECT_NEAR(o[0], 1.0, 1e-12);
  EXPECT_NEAR(o[1], -2.0, 1e-12);
  EXPECT_NEAR(o[2], 0x1p-24, 1e-20);
  EXPECT_NEAR(o[3], 65504.0, 1e-8);
}

TEST(Reference, AFullyMaskedRowIsTheEmptyState) {
  Batch batch;
  batch.spec.mask = Mask::custom;
  std::vector<uint8_t> mask(9 * 3 + 5 * 2, 1);
  std::fill(mask.begin() + 9, mask.begin() + 18, uint8_t{0});
  batch.mask_indptr = {0, 27, 37};
  const ReferenceResult result = batch.run({}, {{"mask", TensorView(mask.data(), DType::uint8, {37})}});
  for (size_t h = 0; h < kHeads; ++h) {
    EXPECT_EQ(result.lse[kHeads + h], -std::numeric_limits<double>::infinity());
    EXPECT_EQ(result.o[(kHeads + h) * kDimVo], 0.0);
    EXPECT_TRUE(std::isfinite(result.lse[h]));
  }
}

// The texts of the built-in variants, run as a user's, against the closed forms.
TEST(Reference, ClosedFormsAgreeWithTheTextsOfTheBuiltInVariants) {
  Batch batch;
  std::mt19937 random(32);
  std::vector<uint8_t> mask(37), bits(4 + 2 + 4);
  for (uint8_t& m : mask) m = random() % 2;
  const std::vector<int64_t> indptr = {0, 27, 37}, bytes = {0, 4, 6};
  for (int e = 0; e < 37; ++e) {
    const int at = e < 27 ? e : 32 + e - 27;
    if (mask[static_cast<size_t>(e)] != 0) bits[static_cast<size_t>(at / 8)] |= static_cast<uint8_t>(1 << (at % 8));
  }
  const auto tensors = [&](const std::string& name) -> std::vector<TensorArg> {
    if (name == "Alibi") return {{"slopes", TensorView(batch.slopes.data(), DType::fp32, {kHeads})}};
    if (name == "AttentionSink") return {{"sinks", TensorView(batch.slopes.data(), DType::fp32, {kHeads})}};
    if (name == "CustomMask")
      return {{"mask", TensorView(mask.data(), DType::uint8, {37})},
              {"mask_indptr", TensorView(indptr.data(), DType::int64, {3})}};
    if (name == "CustomMaskPacked")
      return {{"mask", TensorView(bits.data(), DType::uint8, {10})},
              {"mask_indptr", TensorView(bytes.data(), DType::int64, {3})}};
    return {};
  };
  for (const auto& make :
       {variants::logits_soft_cap, variants::alibi, variants::sigmoid, variants::attention_sink, variants::causal,
        variants::sliding_window, variants::custom_mask, variants::custom_mask_packed}) {
    batch.spec.variant = make();
    const std::string name = batch.spec.variant.name;
    SCOPED_TRACE(name);
    std::vector<ScalarArg> scalars;
    if (name == "LogitsSoftCap") scalars = {{"cap", 2}};
    if (name == "Sigmoid") scalars = {{"bias", -0.5}};
    batch.mask_indptr = name == "CustomMaskPacked" ? bytes : indptr;
    const ReferenceResult closed = batch.run(scalars, tensors(name));
    batch.rename_variant("Own");
    const ReferenceResult text = batch.run(scalars, tensors(name));
    expect_near(closed.o, text.o, 1e-12);
    expect_near(closed.lse, text.lse, 1e-12);
  }
}

TEST(Reference, ASoftCapThatIsNotAboveZeroOrIsInfiniteIsNone) {
  Batch batch;
  const ReferenceResult plain = batch.run();
  for (const std::string name : {"LogitsSoftCap", "Own"}) {  // the closed form and the text
    batch.spec.variant = variants::logits_soft_cap();
    batch.rename_variant(name);
    for (const double cap : {std::numeric_limits<double>::infinity(), 0.0, -1.0}) {
      SCOPED_TRACE(name + ", cap " + std::to_string(cap));
      const ReferenceResult capped = batch.run({{"cap", cap}});
      EXPECT_EQ(capped.o, plain.o);
      EXPECT_EQ(capped.lse, plain.lse);
    }
  }
}

TEST(Reference, AnInfiniteSinkTakesAllAndItsOppositeNothing) {
  Batch batch;
  const ReferenceResult plain = batch.run();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> sinks = {infinity, -infinity, infinity, -infinity};
  for (const std::string name : {"AttentionSink", "Own"}) {  // the closed form and the text
    SCOPED_TRACE(name);
    batch.spec.variant = variants::attention_sink();
    batch.rename_variant(name);
    const ReferenceResult sunk = batch.run({}, {{"sinks", TensorView(sinks.data(), DType::fp32, {kHeads})}});
    for (size_t row = 0; row < sunk.lse.size(); ++row) {
      const bool all = row % kHeads % 2 == 0;
      EXPECT_EQ(sunk.lse[row], all ? double{infinity} : plain.lse[row]) << row;
      for (size_t i = row * kDimVo; i < (row + 1) * kDimVo; ++i) EXPECT_EQ(sunk.o[i], all ? 0.0 : plain.o[i]) << i;
    }
  }
}

TEST(Reference, VectorHooksActOnQueriesKeysValuesAndOutputs) {
  Batch batch;
  const ReferenceResult plain = batch.run();
  batch.spec.variant = {.name = "Hooks", .text = R"(struct Hooks {
  real query_transform(P, Vec x, int i, Row) { return 2 * x[i]; }
  real key_transform(P, Vec x, int i, Row) { return x[i] / 2; }
  real value_transform(P, Vec x, int i, Row r) { return x[i] * (r.head == 0 ? 1 : 3); }
  real output_transform(P, Vec x, int i, Row r) { return r.head < 2 ? -x[i] : x[i] / 3; }
};
)"};
  const ReferenceResult hooked = batch.run();
  expect_near(hooked.lse, plain.lse, 1e-12);
  for (size_t i = 0; i < plain.o.size(); ++i) {
    const bool first = i / kDimVo % kHeads < 2;
    EXPECT_NEAR(hooked.o[i], first ? -plain.o[i] : plain.o[i], 1e-12);
  }
}

TEST(Reference, IntervalsOfAVariantAreUnitedAndABoundOfMinusOneIsOff) {
  Batch batch;
  batch.spec.variant = {.scalars = {{"sinks", ScalarKind::integer}, {"window_left", ScalarKind::integer}},
                        .intervals = {{.upper = {{.scalar = "sinks"}}},
                                      {.lower = {{.q_pos = true, .scalar = "window_left", .scalar_sign = -1}}}}};
  const auto run = [&](double sinks, double left) {
    PlanInput in = batch.input();
    in.scalars = {{"sinks", sinks}, {"window_left", left}};
    return attention_reference(batch.spec, in, batch.tensors());
  };
  double lse = 0;
  batch.by_hand(
      0, 1, 3, [](int t) { return t < 2 || t >= 6; }, &lse);
  EXPECT_NEAR(run(2, 1).lse[kHeads + 3], lse, 1e-12);
  batch.by_hand(
      0, 1, 3, [](int) { return true; }, &lse);
  EXPECT_NEAR(run(0, -1).lse[kHeads + 3], lse, 1e-12);
}

}  // namespace
}  // namespace weft
