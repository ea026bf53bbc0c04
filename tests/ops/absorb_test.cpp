// Absorbed weights against the layer they come from, in fp64.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "weft/error.h"
#include "weft/ops.h"

namespace weft {
namespace {

constexpr int kHeads = 3, kNope = 5, kQ = 11, kRank = 8, kV = 6, kHidden = 7, kTokens = 9;

using Values = std::vector<float>;
Values random_values(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Values x(n);
  for (float& value : x) value = normal(random);
  return x;
}

double at(const Values& x, size_t i) { return static_cast<double>(x[i]); }

// One query token's output of the layer: keys and values made from latent rows, head by head.
std::vector<double> layer(const Values& uq, const Values& uk, const Values& uv, const Values& o, const Values& c_q,
                          const Values& c_kv) {
  std::vector<double> out(kHidden, 0.);
  for (size_t h = 0; h < kHeads; ++h) {
    std::vector<double> p(kTokens, 0.);
    double sum = 0;
    for (size_t t = 0; t < kTokens; ++t) {
      double s = 0;
      for (size_t n = 0; n < kNope; ++n) {
        double q = 0, k = 0;
        for (size_t i = 0; i < kQ; ++i) q += at(uq, (h * kNope + n) * kQ + i) * at(c_q, i);
        for (size_t r = 0; r < kRank; ++r) k += at(uk, (h * kNope + n) * kRank + r) * at(c_kv, t * kRank + r);
        s += q * k;
      }
      p[t] = std::exp(0.02 * s);
      sum += p[t];
    }
    for (size_t v = 0; v < kV; ++v) {
      double mean = 0;
      for (size_t t = 0; t < kTokens; ++t)
        for (size_t r = 0; r < kRank; ++r)
          mean += p[t] / sum * at(uv, (h * kV + v) * kRank + r) * at(c_kv, t * kRank + r);
      for (size_t i = 0; i < kHidden; ++i) out[i] += at(o, (i * kHeads + h) * kV + v) * mean;
    }
  }
  return out;
}

// The same from the absorbed weights: attention over latent rows.
std::vector<double> absorbed_layer(const Values& uq_uk, const Values& uv_o, const Values& c_q, const Values& c_kv) {
  std::vector<double> out(kHidden, 0.);
  for (size_t h = 0; h < kHeads; ++h) {
    std::vector<double> p(kTokens, 0.);
    double sum = 0;
    for (size_t t = 0; t < kTokens; ++t) {
      double s = 0;
      for (size_t r = 0; r < kRank; ++r)
        for (size_t i = 0; i < kQ; ++i) s += at(uq_uk, (h * kRank + r) * kQ + i) * at(c_q, i) * at(c_kv, t * kRank + r);
      p[t] = std::exp(0.02 * s);
      sum += p[t];
    }
    for (size_t r = 0; r < kRank; ++r) {
      double mean = 0;
      for (size_t t = 0; t < kTokens; ++t) mean += p[t] / sum * at(c_kv, t * kRank + r);
      for (size_t i = 0; i < kHidden; ++i) out[i] += at(uv_o, (i * kHeads + h) * kRank + r) * mean;
    }
  }
  return out;
}

TensorView view(const Values& x, std::initializer_list<int64_t> shape) {
  return TensorView(x.data(), DType::fp32, shape);
}

TEST(AbsorbedWeights, GiveTheOutputOfTheLayer) {
  const Values uq = random_values(kHeads * kNope * kQ, 1), uk = random_values(kHeads * kNope * kRank, 2),
               uv = random_values(kHeads * kV * kRank, 3), o = random_values(kHidden * kHeads * kV, 4),
               c_q = random_values(kQ, 5), c_kv = random_values(kTokens * kRank, 6);
  Values uq_uk(kHeads * kRank * kQ, NAN), uv_o(kHidden * kHeads * kRank, NAN);
  absorb_query_weights(view(uq, {kHeads, kNope, kQ}), view(uk, {kHeads, kNope, kRank}),
                       view(uq_uk, {kHeads, kRank, kQ}));
  absorb_output_weights(view(uv, {kHeads, kV, kRank}), view(o, {kHidden, kHeads, kV}),
                        view(uv_o, {kHidden, kHeads, kRank}));
  const std::vector<double> expected = layer(uq, uk, uv, o, c_q, c_kv), got = absorbed_layer(uq_uk, uv_o, c_q, c_kv);
  for (size_t i = 0; i < kHidden; ++i) EXPECT_NEAR(got[i], expected[i], 1e-5);
}

// Models store the two parts of a query's projection, and of the latent's, side by side.
TEST(AbsorbedWeights, TakePartsOfLargerTensors) {
  const Values both = random_values(kHeads * (kNope + 2) * kQ, 1), uk = random_values(kHeads * kNope * kRank, 2);
  Values uq, whole(kHeads * kRank * kQ), part(whole.size());
  for (size_t h = 0; h < kHeads; ++h) {
    const auto begin = both.begin() + static_cast<std::ptrdiff_t>(h * (kNope + 2) * kQ);
    uq.insert(uq.end(), begin, begin + kNope * kQ);
  }
  absorb_query_weights(view(both, {kHeads, kNope + 2, kQ}).slice(1, 0, kNope), view(uk, {kHeads, kNope, kRank}),
                       view(part, {kHeads, kRank, kQ}));
  absorb_query_weights(view(uq, {kHeads, kNope, kQ}), view(uk, {kHeads, kNope, kRank}),
                       view(whole, {kHeads, kRank, kQ}));
  EXPECT_EQ(part, whole);
}

TEST(AbsorbedWeights, RefuseShapesThatDoNotMeet) {
  const Values x(1000);
  EXPECT_THROW(absorb_query_weights(view(x, {3, 5, 4}), view(x, {3, 6, 8}), view(x, {3, 8, 4})), Error);
  EXPECT_THROW(absorb_query_weights(view(x, {3, 5, 4}), view(x, {3, 5, 8}), view(x, {3, 4, 8})), Error);
  EXPECT_THROW(absorb_output_weights(view(x, {3, 5, 4}), view(x, {7, 5, 3}), view(x, {7, 3, 4})), Error);
  EXPECT_THROW(absorb_output_weights(view(x, {3, 5, 4}), view(x, {7, 3, 5}), view(x, {7, 4})), Error);
}

}  // namespace
}  // namespace weft
