// What errors are measured against, of numbers of the call and of what a backend says it rounds.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/backend.h"
#include "attention/reference/error_model/error_model.h"
#include "tests/attention/reference/batch.h"

namespace weft {
namespace {

using namespace testing;

TEST(ErrorTerms, ScaleGrowsWithTheSlopeOfTheLogitsTransform) {
  Batch batch;
  const auto run = [&](double sm_scale) {
    AttentionTensors t = batch.tensors();
    t.sm_scale = static_cast<float>(sm_scale);
    return measured_reference(batch.spec, batch.input(), t, {});
  };
  const MeasuredReference flat = run(1), steep_by_scale = run(8);
  batch.spec.variant = {.name = "Steep", .text = R"(struct Steep {
  real logits_transform(P, Score, real s) { return 8 * s; }
};
)"};
  const MeasuredReference steep = run(1);
  expect_near(steep.o, steep_by_scale.o, 1e-12);
  double largest = 0;
  for (size_t i = 0; i < steep.scale.size(); ++i) {
    EXPECT_NEAR(steep.scale[i], steep_by_scale.scale[i], 1e-6 * steep.scale[i]);
    largest = std::max(largest, steep.scale[i] / flat.scale[i]);
  }
  EXPECT_GT(largest, 2);
}

TEST(ErrorTerms, ScaleIsTheSameForEveryFormAndForClosedFormsAndTexts) {
  Batch batch;
  batch.spec.variant = variants::logits_soft_cap();
  const MeasuredReference ragged = batch.measure({{"cap", 2}});
  batch.spec.kv_form = KvForm::paged;
  batch.spec.layout = Layout::hnd;
  EXPECT_EQ(batch.measure({{"cap", 2}}).scale, ragged.scale);
  batch.rename_variant("Own");
  // Finite differences of two ways to write one function.
  expect_near(batch.measure({{"cap", 2}}).scale, ragged.scale, 1e-7);
}

TEST(ErrorTerms, ErrorsPassThroughTheOutputTransformWhichAddsItsOwn) {
  Batch batch;
  const MeasuredReference plain = batch.measure();
  batch.spec.variant = {.name = "Thirds", .text = R"(struct Thirds {
  real output_transform(P p, Vec x, int i, Row r) { return r.head < 2 ? -x[i] : x[i] / 3; }
};
)"};
  const MeasuredReference hooked = batch.measure();
  for (size_t i = 0; i < plain.o.size(); ++i) {
    const double slope = i / kDimVo % kHeads < 2 ? 1 : 1. / 3;
    EXPECT_NEAR(hooked.scale[i], slope * (plain.scale[i] + std::abs(plain.o[i])), 1e-6);
  }
}

TEST(ErrorTerms, NothingOfThePartThatIsLeftOutIsMeasured) {
  Batch batch;
  const MeasuredReference all = batch.measure();
  const MeasuredReference part =
      measured_reference(batch.spec, batch.input(), batch.tensors(), {}, {.row_begin = 1, .row_end = 3});
  ASSERT_EQ(part.scale.size(), part.o.size());
  for (size_t i = 0; i < all.o.size(); ++i) {
    const size_t row = i / kDimVo / kHeads;
    EXPECT_EQ(part.scale[i], row == 1 || row == 2 ? all.scale[i] : 0) << i;
    EXPECT_EQ(part.o[i], row == 1 || row == 2 ? all.o[i] : 0) << i;
  }
}

// With one key p is 1, half a step off by its own size; the logit does not matter to o, and moves lse.
TEST(ErrorTerms, StepsOfIntegersMoveWeightsAndLogitsByHalfAStep) {
  Batch batch;
  batch.qo_indptr = {0, 1, 1};
  batch.kv_indptr = {0, 1, 1};
  batch.kv_len = {1, 0};
  EXPECT_TRUE(batch.measure().coarse.empty());
  const attention::Rounding rounding{.query_steps = 100, .probability_steps = 50, .probability_tile = 4};
  const MeasuredReference r = batch.measure({}, {}, rounding);
  for (size_t h = 0; h < kHeads; ++h) {
    double most = 0, length = 0;
    for (size_t d = 0; d < kDim; ++d) {
      most = std::max(most, std::abs(double{batch.q[h * kDim + d]}));
      length += std::abs(double{batch.k[h / 2 * kDim + d]});
    }
    const double logit = most / 200 * length / 4;  // sm_scale = 1/4
    EXPECT_NEAR(r.coarse_lse[h], logit, 1e-12);
    for (size_t d = 0; d < kDimVo; ++d)
      EXPECT_NEAR(r.coarse[h * kDimVo + d], (2 * logit + 1 / 100.) * std::abs(double{batch.v[h / 2 * kDimVo + d]}),
                  1e-12);
  }
}

TEST(ErrorTerms, ValuesCountAsSomeUnitsOfTheirScalesWhereTheRoundingSaysSo) {
  Batch batch;
  const MeasuredReference plain = batch.measure();
  const MeasuredReference counted = batch.measure({}, {}, {.least_units = 100});  // a scale is 1 where there are none
  for (size_t i = 0; i < plain.scale.size(); ++i) EXPECT_NEAR(counted.scale[i], 100, 1e-9) << i;
  EXPECT_TRUE(counted.coarse.empty());
}

TEST(ErrorTerms, AVariantMovesItByWhatItsTextInFloatRounds) {
  Batch batch;
  batch.spec.variant = {.name = "Turn",
                        .text = R"(struct Turn {
  real key_transform(P p, Vec x, int i, Row r) { return x[i] * weft::cos(real(r.pos) * p.step); }
};
)",
                        .scalars = {{.name = "step"}}};
  const attention::Rounding rounding = attention::backend_of(Device::cpu()).rounding(batch.spec, DType::fp32);
  const auto largest = [](const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); };
  const double near = largest(batch.measure({{"step", 1.1}}, {}, rounding).moved),
               far = largest(batch.measure({{"step", 3001.1}}, {}, rounding).moved);
  EXPECT_GT(near, 0);
  EXPECT_GT(far, 100 * near);                                      // angles of thousands
  EXPECT_EQ(largest(batch.measure({{"step", 3001.1}}).moved), 0);  // whose functors are exact
}

TEST(ErrorTerms, OfClosedFormsFollowFromOperationsAndTheErrorOfTanh) {
  Batch batch;
  batch.spec.variant = variants::logits_soft_cap();
  const MeasuredReference exact = batch.measure({{"cap", 2}}, {}, {.tanh_ulps = 0}),
                          rough = batch.measure({{"cap", 2}}, {}, {.tanh_ulps = 4});
  // 3 operations or 11, and 2 for exponents.
  for (size_t i = 0; i < exact.moved_lse.size(); ++i)
    EXPECT_NEAR(rough.moved_lse[i] / exact.moved_lse[i], 13. / 5, 1e-9);
}

}  // namespace
}  // namespace weft
