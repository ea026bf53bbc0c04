// Lesson 5: learned attention sinks (gpt-oss). Each head has a logit s that takes part in the softmax's denominator and
// has no value: a head that finds nothing to attend may attend nothing.
//
// The sink is added once a row, whatever parts its keys were cut into. And since it is counted by the lse, a part that
// has it merges with parts that don't: the lesson computes all keys at once, and two halves that it merges.
#include <cmath>
#include <cstdio>
#include <vector>

#include "weft/attention.h"

using namespace weft;

int main() try {
  constexpr int kLen = 200, kHalf = 100, kHeads = 2, kDim = 32;
  std::vector<float> q(kHeads * kDim), k(kLen * kHeads * kDim), v(k.size());
  for (size_t i = 0; i < q.size(); ++i) q[i] = std::sin(0.3f * static_cast<float>(i));
  for (size_t i = 0; i < k.size(); ++i) {
    k[i] = std::sin(0.7f * static_cast<float>(i));
    v[i] = std::cos(0.1f * static_cast<float>(i));
  }
  const std::vector<float> sinks{4.f, -1.f};

  AttentionSpec plain{.head_dim_qk = kDim, .head_dim_vo = kDim, .kv_form = KvForm::ragged};
  AttentionSpec with_sink = plain;
  with_sink.variant = variants::attention_sink();
  AttentionTensors extra;
  extra.tensors = {{"sinks", TensorView(sinks.data(), DType::fp32, {kHeads})}};

  const TensorView query(q.data(), DType::fp32, {1, kHeads, kDim});
  const TensorView keys(k.data(), DType::fp32, {kLen, kHeads, kDim}), values(v.data(), DType::fp32, keys.shape());
  std::vector<float> whole(q.size()), whole_lse(kHeads);
  attend(with_sink, query, keys, values, TensorView(whole.data(), DType::fp32, {1, kHeads, kDim}),
         TensorView(whole_lse.data(), DType::fp32, {1, kHeads}), extra);

  // Two halves, one of them with the sink.
  std::vector<float> parts(2 * q.size()), lses(2 * kHeads), merged(q.size()), merged_lse(kHeads);
  const TensorView o(parts.data(), DType::fp32, {2, 1, kHeads, kDim}), lse(lses.data(), DType::fp32, {2, 1, kHeads});
  attend(with_sink, query, keys.slice(0, 0, kHalf), values.slice(0, 0, kHalf), o.select(0, 0), lse.select(0, 0), extra);
  attend(plain, query, keys.slice(0, kHalf, kLen), values.slice(0, kHalf, kLen), o.select(0, 1), lse.select(0, 1));
  merge_states(o, lse, TensorView(merged.data(), DType::fp32, {1, kHeads, kDim}),
               TensorView(merged_lse.data(), DType::fp32, {1, kHeads}));

  // By hand.
  bool right = true;
  for (size_t head = 0; head < kHeads; ++head) {
    double sum = std::exp(double{sinks[head]}), expected = 0;
    for (size_t t = 0; t < kLen; ++t) {
      const size_t at = (t * kHeads + head) * kDim;
      double s = 0;
      for (size_t d = 0; d < kDim; ++d) s += double{q[head * kDim + d]} * double{k[at + d]};
      const double p = std::exp(s / std::sqrt(double{kDim}));
      sum += p;
      expected += p * double{v[at]};
    }
    const size_t at = head * kDim;
    std::printf("head %zu: o = %.6f, merged %.6f, by hand %.6f; the sink takes %.0f %%\n", head, double{whole[at]},
                double{merged[at]}, expected / sum, 100 * std::exp(double{sinks[head]}) / sum);
    for (const float got : {whole[at], merged[at]}) right = right && std::abs(double{got} - expected / sum) < 1e-5;
    for (const float got : {whole_lse[head], merged_lse[head]})
      right = right && std::abs(double{got} - std::log(sum)) < 1e-5;
  }
  return right ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
