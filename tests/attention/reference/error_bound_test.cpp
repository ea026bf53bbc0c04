// The bound must hold for what a correct kernel does, and break for what a wrong one does.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "attention/backend.h"
#include "attention/reference/error_model/error_model.h"

namespace weft {
namespace {

float to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u);
}

// Of products in bf16, and of those in fp32.
constexpr double kBf16 = 0x1p-8;
attention::Rounding rounding_of(DType compute) {
  if (compute == DType::bf16) return {.probabilities = kBf16, .vectors = kBf16};
  return {};
}

struct Problem {
  int kv_len, dim;
  std::vector<float> q, k, v;
  std::vector<int32_t> qo_indptr = {0, 1}, kv_indptr;
  Problem(int n, int d, uint32_t seed) : kv_len(n), dim(d), kv_indptr{0, n} {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (auto [to, count] : {std::pair{&q, d}, {&k, n * d}, {&v, n * d}})
      for (int i = 0; i < count; ++i) to->push_back(to_bf16(normal(random)));
  }
  AttentionSpec spec() const { return {.head_dim_qk = dim, .head_dim_vo = dim, .kv_form = KvForm::ragged}; }
  MeasuredReference reference() const {
    const PlanInput in{.num_qo_heads = 1, .num_kv_heads = 1, .qo_indptr = qo_indptr, .kv_indptr = kv_indptr};
    AttentionTensors tensors;
    tensors.q = TensorView(q.data(), DType::fp32, {1, 1, dim});
    tensors.kv = KvCache(TensorView(k.data(), DType::fp32, {kv_len, 1, dim}),
                         TensorView(v.data(), DType::fp32, {kv_len, 1, dim}));
    return measured_reference(spec(), in, tensors, {});
  }
  // One sequential pass in fp32, probabilities rounded as the compute type says, `dropped` keys left out.
  std::vector<float> kernel(DType compute, int dropped) const {
    const float scale = 1.f / std::sqrt(static_cast<float>(dim));
    std::vector<float> s(static_cast<size_t>(kv_len)), o(static_cast<size_t>(dim));
    float m = -1e30f, l = 0;
    for (int j = dropped; j < kv_len; ++j) {
      float dot = 0;
      for (int d = 0; d < dim; ++d) dot += q[static_cast<size_t>(d)] * k[static_cast<size_t>(j * dim + d)];
      s[static_cast<size_t>(j)] = dot * scale;
      m = std::max(m, dot * scale);
    }
    for (int j = dropped; j < kv_len; ++j) {
      const float e = std::exp(s[static_cast<size_t>(j)] - m);
      l += e;
      const float p = compute == DType::bf16 ? to_bf16(e) : e;
      for (int d = 0; d < dim; ++d) o[static_cast<size_t>(d)] += p * v[static_cast<size_t>(j * dim + d)];
    }
    for (float& x : o) x /= l;
    return o;
  }
  // Largest error over its bound.
  double worst(DType compute, int dropped) const {
    const MeasuredReference want = reference();
    const auto o = kernel(compute, dropped);
    const ErrorBound error_bound(spec(), rounding_of(compute));
    double ratio = 0;
    for (size_t i = 0; i < o.size(); ++i)
      ratio = std::max(ratio, std::abs(static_cast<double>(o[i]) - want.o[i]) / error_bound(kv_len, want, i));
    return ratio;
  }
};

TEST(ErrorBound, HoldsForAPlainFp32Computation) {
  for (const int n : {1, 17, 256, 4096}) EXPECT_LT(Problem(n, 64, 1).worst(DType::fp32, 0), 1) << n;
  EXPECT_LT(Problem(300, 256, 2).worst(DType::fp32, 0), 1);
  EXPECT_LT(Problem(300, 8, 3).worst(DType::fp32, 0), 1);
}

TEST(ErrorBound, BreaksWhenOneKeyOfFourThousandIsDropped) {
  for (uint32_t seed = 1; seed < 6; ++seed) EXPECT_GT(Problem(4096, 64, seed).worst(DType::fp32, 1), 1) << seed;
}

TEST(ErrorBound, OfBf16HoldsForRoundedProbabilitiesAndBreaksForADroppedKey) {
  for (const int n : {1, 17, 256, 4096}) EXPECT_LT(Problem(n, 64, 4).worst(DType::bf16, 0), 1) << n;
  for (uint32_t seed = 1; seed < 6; ++seed) EXPECT_GT(Problem(48, 64, seed).worst(DType::bf16, 1), 1) << seed;
}

double bound_of(const AttentionSpec& spec, DType compute, double o, double scale) {
  MeasuredReference measured;
  measured.o = {o};
  measured.scale = {scale};
  measured.moved = {0};
  return ErrorBound(spec, rounding_of(compute))(128, measured, 0);
}

TEST(ErrorBound, CountsTheRoundingOfTheOutputAndOfTransformedVectors) {
  AttentionSpec spec;
  const double fp32 = bound_of(spec, DType::fp32, 1, 0);
  EXPECT_NEAR(fp32, 0x1p-24, 1e-12);
  spec.o_dtype = DType::fp16;
  EXPECT_NEAR(bound_of(spec, DType::fp32, 1, 0), 0x1p-11, 1e-7);
  spec.o_dtype = DType::bf16;
  EXPECT_NEAR(bound_of(spec, DType::fp32, 1, 0), 0x1p-8, 1e-9);
  const double c = bound_of(spec, DType::bf16, 0, 1);
  spec.variant.text = "real key_transform(";
  EXPECT_GT(bound_of(spec, DType::bf16, 0, 1), c);
}

TEST(ErrorBound, FollowsWhatTheBackendStates) {
  const AttentionSpec spec;
  MeasuredReference measured;
  measured.o = {0};
  measured.lse = {0};
  measured.scale = {1};
  measured.moved = {0};
  measured.moved_lse = {0};
  const auto bound = [&](const attention::Rounding& rounding) { return ErrorBound(spec, rounding)(100, measured, 0); };
  const auto of_lse = [&](const attention::Rounding& rounding) {
    return ErrorBound(spec, rounding).of_lse(measured, 0);
  };
  const double smallest = 0x1p-126;
  EXPECT_NEAR(bound({.sums = 0x1p-20}) - smallest, 16 * (bound({}) - smallest), 1e-15);
  EXPECT_NEAR(of_lse({.sums = 0x1p-20}), 16 * of_lse({}), 1e-15);
  EXPECT_NEAR(bound({.probabilities = 0x1p-6}) - bound({}), 0x1p-6, 1e-15);
  // Steps of integers that nobody measured.
  const attention::Rounding integers{.query_steps = 100, .probability_steps = 100, .probability_tile = 16};
  EXPECT_THROW(bound(integers), std::out_of_range);
  measured.coarse = {0.25};
  measured.coarse_lse = {0.5};
  EXPECT_NEAR(bound(integers) - bound({}), 0.25, 1e-15);
  EXPECT_NEAR(of_lse(integers) - of_lse({}), 0.5, 1e-15);
}

TEST(RoundingOfTheCpu, IsThatOfItsComputeTypes) {
  const auto rounding = [](int head_dim, DType compute) {
    const AttentionSpec spec{.head_dim_qk = head_dim, .head_dim_vo = head_dim};
    return attention::backend_of(Device::cpu()).rounding(spec, compute);
  };
  for (const DType compute : {DType::fp32, DType::bf16, DType::int8}) {
    const attention::Rounding r = rounding(64, compute);
    EXPECT_EQ(r.sums, 0x1p-24);
    EXPECT_EQ(r.probabilities, compute == DType::bf16 ? kBf16 : 0);
    EXPECT_EQ(r.vectors, r.probabilities);
    EXPECT_EQ(r.query_steps, compute == DType::int8 ? 32512 : 0);
    EXPECT_EQ(r.probability_steps, r.query_steps);
    EXPECT_EQ(r.tanh_ulps, 4);
    EXPECT_NE(r.math.find("float tanh(float x)"), std::string::npos);
  }
  // Sums of bytes times a query's integers fit 32 bits.
  EXPECT_EQ(rounding(576, DType::int8).query_steps, 0x1p24 / 576);
  EXPECT_EQ(rounding(576, DType::int8).probability_steps, 32512);
}

}  // namespace
}  // namespace weft
