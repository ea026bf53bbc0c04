// Lesson 7: attention over the pages that matter (Quest). Each page of keys has a summary, the least and largest
// element of each channel, which bounds q . k for all of its keys. A step reads the summaries, attends the 16 pages of
// each KV head with the largest bounds, and leaves the other 112 where they are.
//
// The lesson hides one key that a head looks for in a context of 2,048 tokens, somewhere else for each KV head, and
// compares with attention over everything.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "weft/attention.h"
#include "weft/block_sparse.h"
#include "weft/ops.h"
#include "weft/quest.h"

using namespace weft;

namespace {

constexpr int kTokens = 2048, kPage = 16, kPages = kTokens / kPage, kBudget = 16;
constexpr int kQueryHeads = 4, kHeads = 2, kDim = 32;
constexpr int kHidden[kHeads] = {777, 1500};  // what the heads look for

TensorView view(const std::vector<float>& x, std::initializer_list<int64_t> shape) {
  return TensorView(x.data(), DType::fp32, shape);
}

}  // namespace

int main() try {
  std::vector<float> q(kQueryHeads * kDim), k(kTokens * kHeads * kDim), v(k.size());
  for (size_t i = 0; i < q.size(); ++i) q[i] = std::cos(0.2f * static_cast<float>(i));
  for (size_t i = 0; i < k.size(); ++i) {
    k[i] = std::sin(0.37f * static_cast<float>(i) + 1e-4f * static_cast<float>(i * i % 9973));
    v[i] = std::cos(0.11f * static_cast<float>(i));
  }
  for (int head = 0; head < kHeads; ++head)
    for (int d = 0; d < kDim; ++d)
      k[(kHidden[head] * kHeads + head) * kDim + d] = 3 * (q[2 * head * kDim + d] + q[(2 * head + 1) * kDim + d]);

  // The cache and its summaries, kept up as tokens come: a prompt, then one by one.
  std::vector<float> k_pages(k.size()), v_pages(v.size()), low(kPages * kHeads * kDim), high(low.size());
  const KvCache cache(view(k_pages, {kPages, kPage, kHeads, kDim}), view(v_pages, {kPages, kPage, kHeads, kDim}));
  const PageSummaries summaries{view(low, {kPages, kHeads, kDim}), view(high, {kPages, kHeads, kDim})};
  PageTable table(kPage, kPages);
  const PageTable::RequestId request = table.add();
  const auto append = [&](int begin, int end) {
    table.append(request, end - begin);
    const PageTableView pages = table.view({request});
    const std::vector<int32_t> indptr{0, end - begin};
    append_paged_kv(view(k, {kTokens, kHeads, kDim}).slice(0, begin, end),
                    view(v, {kTokens, kHeads, kDim}).slice(0, begin, end), indptr, pages, Layout::nhd, cache);
    update_page_summaries(cache.k, indptr, pages, Layout::nhd, summaries);
  };
  append(0, kTokens - 40);
  for (int t = kTokens - 40; t < kTokens; ++t) append(t, t + 1);

  // One step: choose, plan, attend.
  const std::vector<int32_t> qo_indptr{0, 1};
  const PageTableView pages = table.view({request});
  const TensorView query = view(q, {1, kQueryHeads, kDim});
  const std::vector<int32_t> selected = choose_pages(query, summaries, qo_indptr, pages, kHeads, kBudget);
  const BlockLists lists = select_pages(pages, qo_indptr, kHeads, selected, kBudget);
  const BlockSparse blocks = lists.view();
  AttentionSpec spec{.head_dim_qk = kDim, .head_dim_vo = kDim, .kv_form = KvForm::block_sparse};
  std::vector<float> chosen(q.size()), all(q.size());
  PlanInput input{.num_qo_heads = kQueryHeads, .num_kv_heads = kHeads, .qo_indptr = qo_indptr};
  const auto attend_into = [&](const std::vector<float>& o) {
    const AttentionKernel kernel = build(spec, Device::cpu());
    const Plan plan = kernel.plan(input);
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    kernel.run(plan, {.q = query, .kv = cache, .o = view(o, {1, kQueryHeads, kDim})}, workspace);
  };
  input.blocks = &blocks;
  attend_into(chosen);

  // All 128 pages.
  spec.kv_form = KvForm::paged;
  input.blocks = nullptr;
  input.pages = pages;
  attend_into(all);

  bool right = true;
  for (int head = 0; head < kHeads; ++head) {
    const auto begin = selected.begin() + head * kBudget;
    const bool found = std::count(begin, begin + kBudget, kHidden[head] / kPage) == 1;
    double worst = 0;
    for (int i = 2 * head * kDim; i < (2 * head + 2) * kDim; ++i) {
      const double difference = std::abs(double{chosen[i]} - double{all[i]});
      worst = std::max(worst, difference);
      right = right && difference < 1e-2;
    }
    std::printf("KV head %d: token %d is in page %d, %s; %d of %d pages give the output of all within %.1e\n", head,
                kHidden[head], kHidden[head] / kPage, found ? "chosen" : "not chosen", kBudget, kPages, worst);
    right = right && found && begin[kBudget - 1] == kPages - 1;
  }
  return right ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
