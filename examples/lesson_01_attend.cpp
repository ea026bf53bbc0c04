// Lesson 1: attention over a paged KV cache, one plan a step.
//
// Two requests share a pool of pages. The first has 20 tokens in the cache and brings 4 new queries (its prompt's
// tail), the second has 7 and decodes one. The program prints what each worker does and checks one row by hand.
#include <cmath>
#include <cstdio>
#include <vector>

#include "weft/attention.h"

using namespace weft;

int main() try {
  constexpr int kQoHeads = 4, kKvHeads = 2, kDim = 64, kPageSize = 8, kPages = 6;

  // Who lies where: the page table hands out pages and checks every id once.
  PageTable table(kPageSize, kPages);
  const auto first = table.add(), second = table.add();
  table.append(first, 20);
  table.append(second, 7);
  const PageTableView pages = table.view({first, second});

  // The cache: [pages, page_size, kv_heads, dim], filled by whoever computes K and V.
  std::vector<float> k(kPages * kPageSize * kKvHeads * kDim), v(k.size());
  for (size_t i = 0; i < k.size(); ++i) {
    k[i] = std::sin(0.37f * static_cast<float>(i));
    v[i] = std::cos(0.11f * static_cast<float>(i));
  }
  const std::vector<int32_t> qo_indptr = {0, 4, 5};  // queries of each request
  std::vector<float> q(5 * kQoHeads * kDim), o(q.size()), lse(5 * kQoHeads);
  for (size_t i = 0; i < q.size(); ++i) q[i] = std::sin(0.7f * static_cast<float>(i));

  // What is compiled: types, dims, the cache's form, the mask. Built-in kernels need no compiler.
  AttentionSpec spec;
  spec.head_dim_qk = kDim;
  spec.head_dim_vo = kDim;
  spec.mask = Mask::causal;
  const AttentionKernel kernel = build(spec, Device::cpu());

  // Once a step: lengths become work items. Once a layer: run.
  PlanInput input;
  input.num_qo_heads = kQoHeads;
  input.num_kv_heads = kKvHeads;
  input.qo_indptr = qo_indptr;
  input.pages = pages;
  const Plan plan = kernel.plan(input);
  std::printf("%s\n", plan.to_string().c_str());

  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  plan.upload(workspace);
  AttentionTensors tensors;
  tensors.q = TensorView(q.data(), DType::fp32, {5, kQoHeads, kDim});
  tensors.kv = KvCache(TensorView(k.data(), DType::fp32, {kPages, kPageSize, kKvHeads, kDim}),
                       TensorView(v.data(), DType::fp32, {kPages, kPageSize, kKvHeads, kDim}));
  tensors.o = TensorView(o.data(), DType::fp32, {5, kQoHeads, kDim});
  tensors.lse = TensorView(lse.data(), DType::fp32, {5, kQoHeads});
  kernel.run(workspace, tensors);

  // By hand: the second request's only query, head 3, which reads KV head 1 of its one page.
  const size_t page = static_cast<size_t>(table.pages(second)[0]);
  double sum = 0, expected = 0;
  for (size_t t = 0; t < 7; ++t) {
    const size_t at = ((page * kPageSize + t) * kKvHeads + 1) * kDim;
    double s = 0;
    for (size_t d = 0; d < kDim; ++d)
      s += static_cast<double>(q[(4 * kQoHeads + 3) * kDim + d]) * static_cast<double>(k[at + d]);
    const double p = std::exp(s / std::sqrt(double(kDim)));
    sum += p;
    expected += p * static_cast<double>(v[at]);
  }
  const float got = o[(4 * kQoHeads + 3) * kDim];
  std::printf("o[4, 3, 0] = %.6f, by hand %.6f; lse = %.6f, by hand %.6f\n", static_cast<double>(got), expected / sum,
              static_cast<double>(lse[4 * kQoHeads + 3]), std::log(sum));
  const bool right = std::abs(static_cast<double>(got) - expected / sum) < 1e-5 &&
                     std::abs(static_cast<double>(lse[4 * kQoHeads + 3]) - std::log(sum)) < 1e-5;
  return right ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
