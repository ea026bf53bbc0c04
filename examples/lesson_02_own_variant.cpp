// Lesson 2: an attention variant of your own, compiled when it is first built.
//
// Attention sinks with a window: a token sees the first few tokens and those shortly before it, logits are capped,
// and each head adds a learned bias to every key. The two intervals are data, so that the planner skips what nobody
// sees; the rest is a class with one function. It is compiled once, and later found in the kernel cache.
#include <cmath>
#include <cstdio>
#include <vector>

#include "weft/attention.h"

using namespace weft;

int main() try {
  Variant sinks;
  sinks.name = "SinksAndBias";
  sinks.text = R"(struct SinksAndBias {
  real logits_transform(P p, Score c, real s) {
    return p.cap * weft::tanh(s / p.cap) + p.bias(c.qo_head, c.kv_idx);
  }
};
)";
  sinks.scalars = {{"cap", ScalarKind::real, 30.0}, {"sinks", ScalarKind::integer}, {"window", ScalarKind::integer}};
  sinks.tensors = {{"bias", DType::fp32, 2}};
  Bound at_sinks, in_window;
  at_sinks.scalar = "sinks";  // positions below `sinks`
  in_window.q_pos = true;     // positions from q_pos - window
  in_window.scalar = "window";
  in_window.scalar_sign = -1;
  sinks.intervals = {{{}, {at_sinks}}, {{in_window}, {}}};

  AttentionSpec spec;
  spec.head_dim_qk = spec.head_dim_vo = 32;
  spec.kv_form = KvForm::ragged;
  spec.mask = Mask::causal;  // intersected with the variant's own intervals
  spec.variant = sinks;

  constexpr int kLen = 100, kHeads = 2, kDim = 32, kSinks = 3, kWindow = 10;
  std::vector<float> q(kLen * kHeads * kDim), k(q.size()), v(q.size()), o(q.size()), bias(kHeads * kLen);
  for (size_t i = 0; i < q.size(); ++i) {
    q[i] = std::sin(0.3f * static_cast<float>(i));
    k[i] = std::sin(0.7f * static_cast<float>(i));
    v[i] = std::cos(0.1f * static_cast<float>(i));
  }
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = 0.01f * static_cast<float>(i % 13);

  const auto view = [](const std::vector<float>& x) { return TensorView(x.data(), DType::fp32, {kLen, kHeads, kDim}); };
  AttentionTensors extra;
  extra.scalars = {{"cap", 20.0}, {"sinks", kSinks}, {"window", kWindow}};
  extra.tensors = {{"bias", TensorView(bias.data(), DType::fp32, {kHeads, kLen})}};
  attend(spec, view(q), view(k), view(v), view(o), {}, extra);

  // By hand: the last token, head 1.
  const size_t row = ((kLen - 1) * kHeads + 1) * kDim;
  double sum = 0, expected = 0;
  for (size_t t = 0; t < kLen; ++t) {
    if (t >= kSinks && t + kWindow < kLen - 1) continue;
    double s = 0;
    for (size_t d = 0; d < kDim; ++d)
      s += static_cast<double>(q[row + d]) * static_cast<double>(k[(t * kHeads + 1) * kDim + d]);
    const double p = std::exp(20 * std::tanh(s / std::sqrt(double(kDim)) / 20) + static_cast<double>(bias[kLen + t]));
    sum += p;
    expected += p * static_cast<double>(v[(t * kHeads + 1) * kDim]);
  }
  std::printf("o[99, 1, 0] = %.6f, by hand %.6f\n", static_cast<double>(o[row]), expected / sum);
  return std::abs(static_cast<double>(o[row]) - expected / sum) < 1e-5 ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
