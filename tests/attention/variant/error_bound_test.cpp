// The bound must hold for what a correct kernel does, and break for what a wrong one does.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "attention/cpu/leaf.h"
#include "attention/reference/reference.h"

namespace weft {
namespace {

float to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u);
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
  ReferenceResult reference() const {
    const PlanInput in{.num_qo_heads = 1, .num_kv_heads = 1, .qo_indptr = qo_indptr, .kv_indptr = kv_indptr};
    AttentionTensors tensors;
    tensors.q = TensorView(q.data(), DType::fp32, {1, 1, dim});
    tensors.kv = KvCache(TensorView(k.data(), DType::fp32, {kv_len, 1, dim}),
                         TensorView(v.data(), DType::fp32, {kv_len, 1, dim}));
    return attention_reference(spec(), in, tensors);
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
    const ReferenceResult want = reference();
    const auto o = kernel(compute, dropped);
    const ErrorBound error_bound(spec(), compute);
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
  return ErrorBound(spec, compute)(128, {.o = {o}, .lse = {}, .scale = {scale}, .moved = {0}}, 0);
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

}  // namespace
}  // namespace weft
