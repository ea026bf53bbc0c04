// Lesson 3: norm and rotation of queries and keys inside of attention, over a cache of raw keys.
//
// The cache holds keys as the projection made them. Whoever stores them so can change positions afterwards (a rolling
// cache, a prefix moved elsewhere) without touching the cache: each key is normed and turned when it is read, by the
// position that it has in this call. The angles are a table, so every scaling of RoPE is data; here it is that of
// Llama 3.1.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "weft/attention.h"

using namespace weft;

namespace {

constexpr int kLen = 48, kQueryHeads = 4, kHeads = 2, kDim = 32, kHalf = kDim / 2;

// RMS norm with a learned weight, then the rotation of the two halves: y_i = n_i cos - n_{i+h} sin for the first half,
// n_i cos + n_{i-h} sin for the second. weft::pair_halves gives the partner with its sign; its weight is at the
// partner's index.
constexpr const char* kText = R"(struct NormedRope {
  template <class W>
  static real turned(P p, Vec x, int i, Row r, W weight) {
    const real scale = weft::rsqrt(weft::dot(x, x) / x.size() + p.eps);
    const int half = x.size() / 2, partner = i < half ? i + half : i - half, pair = i < half ? i : i - half;
    return scale * (x[i] * weight(i) * p.cos(r.pos, pair) +
                    weft::pair_halves(x, i) * weight(partner) * p.sin(r.pos, pair));
  }
  real query_transform(P p, Vec x, int i, Row r) { return turned(p, x, i, r, p.q_weight); }
  real key_transform(P p, Vec x, int i, Row r) { return turned(p, x, i, r, p.k_weight); }
};
)";

// Radians a position: wavelengths far above the context that the model was trained on are stretched 8 times.
double frequency(int pair) {
  constexpr double kTheta = 500000, kFactor = 8, kLow = 1, kHigh = 4, kContext = 8192, kTurn = 6.283185307179586;
  const double plain = std::pow(kTheta, -2. * pair / kDim), wavelength = kTurn / plain;
  const double smooth = std::clamp((kContext / wavelength - kLow) / (kHigh - kLow), 0., 1.);
  return (1 - smooth) * plain / kFactor + smooth * plain;
}

// The same by hand, in double.
std::vector<double> normed_and_turned(const float* x, const std::vector<float>& weight, int position) {
  double sum = 0;
  for (int i = 0; i < kDim; ++i) sum += double{x[i]} * double{x[i]};
  std::vector<double> n(kDim), y(kDim);
  for (int i = 0; i < kDim; ++i) n[i] = double{x[i]} / std::sqrt(sum / kDim + 1e-6) * double{weight[i]};
  for (int i = 0; i < kHalf; ++i) {
    const double angle = position * frequency(i);
    y[i] = n[i] * std::cos(angle) - n[i + kHalf] * std::sin(angle);
    y[i + kHalf] = n[i + kHalf] * std::cos(angle) + n[i] * std::sin(angle);
  }
  return y;
}

}  // namespace

int main() try {
  AttentionSpec spec{.head_dim_qk = kDim, .head_dim_vo = kDim, .kv_form = KvForm::ragged, .mask = Mask::causal};
  spec.variant = {.name = "NormedRope",
                  .text = kText,
                  .scalars = {{"eps", ScalarKind::real, 1e-6}},
                  .tensors = {{"cos", DType::fp32, 2}, {"sin", DType::fp32, 2}, {"q_weight"}, {"k_weight"}}};

  std::vector<float> q(kLen * kQueryHeads * kDim), k(kLen * kHeads * kDim), v(k.size()), o(q.size());
  std::vector<float> cos(kLen * kHalf), sin(cos.size()), q_weight(kDim), k_weight(kDim);
  for (size_t i = 0; i < q.size(); ++i) q[i] = std::sin(0.37f * static_cast<float>(i));
  for (size_t i = 0; i < k.size(); ++i) {
    k[i] = std::sin(0.71f * static_cast<float>(i));
    v[i] = std::cos(0.13f * static_cast<float>(i));
  }
  for (int i = 0; i < kDim; ++i) {
    q_weight[i] = 1 + 0.01f * static_cast<float>(i);
    k_weight[i] = 2 - 0.02f * static_cast<float>(i);
  }
  for (int pos = 0; pos < kLen; ++pos)
    for (int i = 0; i < kHalf; ++i) {
      cos[pos * kHalf + i] = static_cast<float>(std::cos(pos * frequency(i)));
      sin[pos * kHalf + i] = static_cast<float>(std::sin(pos * frequency(i)));
    }

  const auto view = [](const std::vector<float>& x, std::initializer_list<int64_t> shape) {
    return TensorView(x.data(), DType::fp32, shape);
  };
  AttentionTensors extra;
  extra.tensors = {{"cos", view(cos, {kLen, kHalf})},
                   {"sin", view(sin, {kLen, kHalf})},
                   {"q_weight", view(q_weight, {kDim})},
                   {"k_weight", view(k_weight, {kDim})}};
  attend(spec, view(q, {kLen, kQueryHeads, kDim}), view(k, {kLen, kHeads, kDim}), view(v, {kLen, kHeads, kDim}),
         view(o, {kLen, kQueryHeads, kDim}), {}, extra);

  // By hand: the last token, query head 3, which reads KV head 1.
  const size_t row = ((kLen - 1) * kQueryHeads + 3) * kDim;
  const std::vector<double> query = normed_and_turned(&q[row], q_weight, kLen - 1);
  double sum = 0, expected = 0;
  for (int t = 0; t < kLen; ++t) {
    const size_t at = static_cast<size_t>(t * kHeads + 1) * kDim;
    const std::vector<double> key = normed_and_turned(&k[at], k_weight, t);
    double s = 0;
    for (int d = 0; d < kDim; ++d) s += query[d] * key[d];
    const double p = std::exp(s / std::sqrt(double{kDim}));
    sum += p;
    expected += p * double{v[at]};
  }
  std::printf("o[%d, 3, 0] = %.6f, by hand %.6f\n", kLen - 1, double{o[row]}, expected / sum);
  return std::abs(double{o[row]} - expected / sum) < 1e-5 ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
