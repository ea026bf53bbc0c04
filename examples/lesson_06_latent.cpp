// Lesson 6: latent attention (MLA, DeepSeek-V2). A token is cached as one short row, c_kv and the rotated part of its
// key, for all heads; keys and values of a head are projections of it.
//
// Attention never makes them: the projections are folded into those before and after it, once a model. A query then has
// as many elements as a cached row, and the row is key and value at once. The lesson appends to a paged latent cache,
// attends, and compares with the layer written out.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "weft/attention.h"
#include "weft/ops.h"

using namespace weft;

namespace {

constexpr int kHeads = 4, kNope = 16, kRope = 8, kQ = 24, kRank = 32, kV = 16, kHidden = 20;
constexpr int kTokens = 40, kPage = 16, kPages = 4;

using Values = std::vector<float>;
Values waves(int n, float step) {
  Values x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(step * static_cast<float>(i + 1));
  return x;
}
TensorView view(const Values& x, std::initializer_list<int64_t> shape) {
  return TensorView(x.data(), DType::fp32, shape);
}
// sum_i a[i] b[i]
double dot(const float* a, const float* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

}  // namespace

int main() try {
  // A layer's projections, and what reaches them: c_q of one new token, c_kv and k_pe (normed and rotated) of all.
  const Values w_uq = waves(kHeads * kNope * kQ, 0.37f), w_uk = waves(kHeads * kNope * kRank, 0.73f);
  const Values w_uv = waves(kHeads * kV * kRank, 0.51f), w_o = waves(kHidden * kHeads * kV, 0.19f);
  const Values c_q = waves(kQ, 1.3f), q_pe = waves(kHeads * kRope, 0.9f);
  const Values c_kv = waves(kTokens * kRank, 0.67f), k_pe = waves(kTokens * kRope, 0.41f);

  Values w_uq_uk(kHeads * kRank * kQ), w_uv_o(kHidden * kHeads * kRank);
  absorb_query_weights(view(w_uq, {kHeads, kNope, kQ}), view(w_uk, {kHeads, kNope, kRank}),
                       view(w_uq_uk, {kHeads, kRank, kQ}));
  absorb_output_weights(view(w_uv, {kHeads, kV, kRank}), view(w_o, {kHidden, kHeads, kV}),
                        view(w_uv_o, {kHidden, kHeads, kRank}));

  // The cache: two tensors of pages. Appending takes them as keys and values of one head.
  PageTable table(kPage, kPages);
  const PageTable::RequestId request = table.add();
  table.append(request, kTokens);
  const PageTableView pages = table.view({request});
  Values ckv_pages(kPages * kPage * kRank), kpe_pages(kPages * kPage * kRope);
  const std::vector<int32_t> append_indptr{0, kTokens};
  append_paged_kv(view(c_kv, {kTokens, 1, kRank}), view(k_pe, {kTokens, 1, kRope}), append_indptr, pages, Layout::nhd,
                  {view(ckv_pages, {kPages, kPage, 1, kRank}), view(kpe_pages, {kPages, kPage, 1, kRope})});

  // The query's input through the absorbed projection, then its rotated part.
  Values q(kHeads * (kRank + kRope)), o(kHeads * kRank);
  for (int h = 0; h < kHeads; ++h) {
    float* row = &q[static_cast<size_t>(h * (kRank + kRope))];
    for (int r = 0; r < kRank; ++r) row[r] = static_cast<float>(dot(&w_uq_uk[(h * kRank + r) * kQ], c_q.data(), kQ));
    std::copy_n(&q_pe[static_cast<size_t>(h * kRope)], kRope, row + kRank);
  }

  const AttentionSpec spec{.head_dim_qk = kRank + kRope, .head_dim_vo = kRank, .kv_form = KvForm::latent};
  const AttentionKernel kernel = build(spec, Device::cpu());
  const std::vector<int32_t> qo_indptr{0, 1};
  const Plan plan = kernel.plan({.num_qo_heads = kHeads, .num_kv_heads = 1, .qo_indptr = qo_indptr, .pages = pages});
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  const float scale = 1 / std::sqrt(static_cast<float>(kNope + kRope));  // of a head's keys, not of the latent row
  kernel.run(plan,
             {.q = view(q, {1, kHeads, kRank + kRope}),
              .kv = KvCache::latent(view(ckv_pages, {kPages, kPage, kRank}), view(kpe_pages, {kPages, kPage, kRope})),
              .o = view(o, {1, kHeads, kRank}),
              .sm_scale = scale},
             workspace);

  // By hand: keys and values of every head and token, then the layer's output.
  std::vector<double> expected(kHidden, 0.);
  for (int h = 0; h < kHeads; ++h) {
    double sum = 0;
    std::vector<double> mean(kV, 0.);
    for (int t = 0; t < kTokens; ++t) {
      const float* latent = &c_kv[static_cast<size_t>(t * kRank)];
      double s = dot(&q_pe[static_cast<size_t>(h * kRope)], &k_pe[static_cast<size_t>(t * kRope)], kRope);
      for (int n = 0; n < kNope; ++n)
        s += dot(&w_uq[(h * kNope + n) * kQ], c_q.data(), kQ) * dot(&w_uk[(h * kNope + n) * kRank], latent, kRank);
      const double p = std::exp(s * double{scale});
      sum += p;
      for (int v = 0; v < kV; ++v) mean[v] += p * dot(&w_uv[(h * kV + v) * kRank], latent, kRank);
    }
    for (int i = 0; i < kHidden; ++i)
      for (int v = 0; v < kV; ++v) expected[i] += double{w_o[(i * kHeads + h) * kV + v]} * mean[v] / sum;
  }
  bool right = true;
  for (int i = 0; i < kHidden; ++i) {
    const double got = dot(&w_uv_o[i * kHeads * kRank], o.data(), kHeads * kRank);
    if (i < 3) std::printf("output[%d] = %.5f, by hand %.5f\n", i, got, expected[i]);
    right = right && std::abs(got - expected[i]) < 1e-4 * (1 + std::abs(expected[i]));
  }
  return right ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
