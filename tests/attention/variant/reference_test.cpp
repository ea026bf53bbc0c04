#include "attention/reference/reference.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "attention/variant/text.h"

namespace weft {
namespace {

constexpr int kHeads = 4, kKvHeads = 2, kDim = 16, kDimVo = 8;

uint16_t bf16(float x) { return static_cast<uint16_t>((std::bit_cast<uint32_t>(x) + 0x8000) >> 16); }

// Two requests, 3 of 9 and 2 of 5 tokens, in any form; poison wherever no token lies.
struct Batch {
  std::vector<int32_t> qo_indptr = {0, 3, 5}, kv_indptr = {0, 9, 14}, kv_len = {9, 5};
  std::vector<int32_t> page_indptr = {0, 3, 5}, page_indices = {4, 1, 6, 0, 3}, last_page_len = {1, 1};
  std::vector<float> q, k, v;  // ragged, NHD
  std::vector<float> k_other, v_other;
  AttentionSpec spec{.head_dim_qk = kDim, .head_dim_vo = kDimVo, .kv_form = KvForm::ragged};
  std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 0.0625f};

  Batch() {
    std::mt19937 random(31);
    std::normal_distribution<float> normal;
    for (auto [to, count] :
         {std::pair{&q, 5 * kHeads * kDim}, {&k, 14 * kKvHeads * kDim}, {&v, 14 * kKvHeads * kDimVo}})
      for (int i = 0; i < count; ++i)
        to->push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(normal(random)) & 0xffff0000u));
  }
  PlanInput input() const {
    PlanInput in{.num_qo_heads = kHeads, .num_kv_heads = kKvHeads, .qo_indptr = qo_indptr};
    if (spec.kv_form == KvForm::ragged) in.kv_indptr = kv_indptr;
    if (spec.kv_form == KvForm::padded) {
      in.kv_len = kv_len;
      in.max_kv_len = 12;
    }
    if (spec.kv_form == KvForm::paged) {
      in.pages.page_size = 4;
      in.pages.num_pages = 7;
      in.pages.kv_page_indptr = page_indptr;
      in.pages.kv_page_indices = page_indices;
      in.pages.kv_last_page_len = last_page_len;
    }
    in.scalars = {{"window_left", 2}};
    return in;
  }
  TensorView stored(const std::vector<float>& ragged, int dim, std::vector<float>& to) {
    const bool nhd = spec.layout == Layout::nhd;
    const int outer = spec.kv_form == KvForm::padded ? 2 : spec.kv_form == KvForm::paged ? 7 : 1;
    const int inner = spec.kv_form == KvForm::padded ? 12 : spec.kv_form == KvForm::paged ? 4 : 14;
    to.assign(static_cast<size_t>(outer * inner * kKvHeads * dim), std::nanf(""));
    for (int r = 0; r < 2; ++r)
      for (int t = 0; t < kv_len[static_cast<size_t>(r)]; ++t)
        for (int h = 0; h < kKvHeads; ++h)
          for (int d = 0; d < dim; ++d) {
            const int row = kv_indptr[static_cast<size_t>(r)] + t;
            int o = 0, i = row;
            if (spec.kv_form == KvForm::padded) {
              o = r;
              i = t;
            }
            if (spec.kv_form == KvForm::paged) {
              o = page_indices[static_cast<size_t>(page_indptr[static_cast<size_t>(r)] + t / 4)];
              i = t % 4;
            }
            const int place = nhd ? (o * inner + i) * kKvHeads + h : (o * kKvHeads + h) * inner + i;
            to[static_cast<size_t>(place * dim + d)] = ragged[static_cast<size_t>((row * kKvHeads + h) * dim + d)];
          }
    std::vector<int64_t> shape;
    if (spec.kv_form != KvForm::ragged) shape.push_back(outer);
    shape.push_back(nhd ? inner : kKvHeads);
    shape.push_back(nhd ? kKvHeads : inner);
    shape.push_back(dim);
    return TensorView(to.data(), DType::fp32, shape);
  }
  AttentionTensors tensors() {
    AttentionTensors t;
    t.q = TensorView(q.data(), DType::fp32, {5, kHeads, kDim});
    t.kv = KvCache(stored(k, kDim, k_other), stored(v, kDimVo, v_other));
    return t;
  }
  ReferenceResult run(std::vector<ScalarArg> scalars = {}, std::vector<TensorArg> more = {}) {
    AttentionTensors t = tensors();
    t.scalars = std::move(scalars);
    t.tensors = std::move(more);
    return attention_reference(spec, input(), t);
  }
  // Row i of request r, head h, over the keys that `sees` keeps, from the formula.
  std::vector<double> by_hand(int r, int i, int h, const std::function<bool(int)>& sees, double* lse) const {
    double sum = 0;
    std::vector<double> o(kDimVo);
    for (int t = 0; t < kv_len[static_cast<size_t>(r)]; ++t) {
      if (!sees(t)) continue;
      const size_t row = static_cast<size_t>((kv_indptr[static_cast<size_t>(r)] + t) * kKvHeads + h / 2);
      const size_t q_row = static_cast<size_t>((qo_indptr[static_cast<size_t>(r)] + i) * kHeads + h);
      double s = 0;
      for (size_t d = 0; d < kDim; ++d)
        s += static_cast<double>(q[q_row * kDim + d]) * static_cast<double>(k[row * kDim + d]);
      const double p = std::exp(s / 4);
      sum += p;
      for (size_t d = 0; d < kDimVo; ++d) o[d] += p * static_cast<double>(v[row * kDimVo + d]);
    }
    for (double& x : o) x /= sum;
    *lse = std::log(sum);
    return o;
  }
};

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) {
      ASSERT_NEAR(a[i], b[i], tolerance) << i;
    }
}

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
      EXPECT_EQ(other.scale, ragged.scale);
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
  const std::vector<int64_t> indptr = {0, 27, 37};
  const ReferenceResult result = batch.run({}, {{"mask", TensorView(mask.data(), DType::uint8, {37})},
                                                {"mask_indptr", TensorView(indptr.data(), DType::int64, {3})}});
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
    const ReferenceResult closed = batch.run(scalars, tensors(name));
    // Under another name it is nobody's built-in, and its text is compiled.
    Variant& own = batch.spec.variant;
    own.name = "Own";
    for (size_t at; (at = own.text.find(name)) != std::string::npos;) own.text.replace(at, name.size(), "Own");
    const ReferenceResult text = batch.run(scalars, tensors(name));
    expect_near(closed.o, text.o, 1e-12);
    expect_near(closed.lse, text.lse, 1e-12);
    // Finite differences of two ways to write one function.
    expect_near(closed.scale, text.scale, 1e-7);
  }
}

TEST(Reference, ASoftCapThatIsNotAboveZeroOrIsInfiniteIsNone) {
  Batch batch;
  const ReferenceResult plain = batch.run();
  for (const std::string name : {"LogitsSoftCap", "Own"}) {  // the closed form and the text
    batch.spec.variant = variants::logits_soft_cap();
    batch.spec.variant.name = name;
    std::string& text = batch.spec.variant.text;
    text.replace(text.find("LogitsSoftCap"), std::string("LogitsSoftCap").size(), name);
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
    batch.spec.variant.name = name;
    std::string& text = batch.spec.variant.text;
    text.replace(text.find("AttentionSink"), std::string("AttentionSink").size(), name);
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
    // Errors pass through the output transform, which adds its own.
    EXPECT_NEAR(hooked.scale[i], plain.scale[i] + std::abs(plain.o[i]), 1e-6);
  }
}

TEST(Reference, ScaleGrowsWithTheSlopeOfTheLogitsTransform) {
  Batch batch;
  const auto run = [&](double sm_scale) {
    AttentionTensors t = batch.tensors();
    t.sm_scale = static_cast<float>(sm_scale);
    return attention_reference(batch.spec, batch.input(), t);
  };
  const ReferenceResult flat = run(1), steep_by_scale = run(8);
  batch.spec.variant = {.name = "Steep", .text = R"(struct Steep {
  real logits_transform(P, Score, real s) { return 8 * s; }
};
)"};
  const ReferenceResult steep = run(1);
  expect_near(steep.o, steep_by_scale.o, 1e-12);
  double largest = 0;
  for (size_t i = 0; i < steep.scale.size(); ++i) {
    EXPECT_NEAR(steep.scale[i], steep_by_scale.scale[i], 1e-6 * steep.scale[i]);
    largest = std::max(largest, steep.scale[i] / flat.scale[i]);
  }
  EXPECT_GT(largest, 2);
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
