// Lesson 4: attention without softmax. A chunk of linear attention with decay (RetNet, Lightning Attention) weighs each
// value by q . k times decay^(distance), a decay for each head. The sum over the chunk's own tokens is an attention
// whose states add up; what came before the chunk is a matrix that the caller keeps.
//
// Because states add, the same chunk may be cut anywhere, and parts computed apart are summed: the lesson does both and
// compares.
#include <cmath>
#include <cstdio>
#include <vector>

#include "weft/attention.h"

using namespace weft;

namespace {

constexpr int kLen = 256, kHeads = 2, kDim = 32;

constexpr const char* kText = R"(struct Decay {
  static constexpr bool use_softmax = false;
  real logits_transform(P p, Score c, real s) { return s * weft::exp2(p.log2_decay(c.qo_head) * (c.q_pos - c.kv_pos)); }
};
)";

}  // namespace

int main() try {
  AttentionSpec spec{.head_dim_qk = kDim, .head_dim_vo = kDim, .kv_form = KvForm::ragged, .mask = Mask::causal};
  spec.variant = {.name = "Decay", .text = kText, .tensors = {{"log2_decay"}}, .use_softmax = false};

  std::vector<float> q(kLen * kHeads * kDim), k(q.size()), v(q.size()), whole(q.size()), cut(q.size());
  for (size_t i = 0; i < q.size(); ++i) {
    q[i] = std::sin(0.3f * static_cast<float>(i));
    k[i] = std::sin(0.7f * static_cast<float>(i));
    v[i] = std::cos(0.1f * static_cast<float>(i));
  }
  const std::vector<float> log2_decay{std::log2(0.9f), std::log2(0.99f)};
  const auto view = [](const std::vector<float>& x) { return TensorView(x.data(), DType::fp32, {kLen, kHeads, kDim}); };
  AttentionTensors extra;
  extra.sm_scale = 1.f;
  extra.tensors = {{"log2_decay", TensorView(log2_decay.data(), DType::fp32, {kHeads})}};
  attend(spec, view(q), view(k), view(v), view(whole), {}, extra);

  // The same plan cut into chunks of 64 keys: partial states are added.
  const AttentionKernel kernel = build(spec, Device::cpu());
  const std::vector<int32_t> indptr{0, kLen};
  const Plan plan = kernel.plan({.num_qo_heads = kHeads,
                                 .num_kv_heads = kHeads,
                                 .qo_indptr = indptr,
                                 .kv_indptr = indptr,
                                 .mode = PlanMode::fixed_split,
                                 .fixed_split_size = 64});
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  AttentionTensors tensors = extra;
  tensors.q = view(q);
  tensors.kv = {view(k), view(v)};
  tensors.o = view(cut);
  kernel.run(plan, tensors, workspace);

  // By hand: the last token of head 0.
  const size_t row = static_cast<size_t>((kLen - 1) * kHeads) * kDim;
  double expected = 0, largest = 0;
  for (int t = 0; t < kLen; ++t) {
    double s = 0;
    for (int d = 0; d < kDim; ++d) s += double{q[row + d]} * double{k[static_cast<size_t>(t * kHeads) * kDim + d]};
    expected += s * std::pow(double{0.9f}, kLen - 1 - t) * double{v[static_cast<size_t>(t * kHeads) * kDim]};
  }
  for (size_t i = 0; i < whole.size(); ++i) largest = std::max(largest, std::abs(double{whole[i]} - double{cut[i]}));
  std::printf("o[255, 0, 0] = %.5f, by hand %.5f; %d parts differ by at most %.1e\n", double{whole[row]}, expected,
              plan.num_partials(), largest);
  return std::abs(double{whole[row]} - expected) < 1e-3 && largest < 1e-3 && plan.num_partials() > 1 ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
