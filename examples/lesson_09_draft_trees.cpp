// Lesson 9: trees of draft tokens (speculative decoding). A draft model proposes a tree of continuations; the large
// model runs over all of its nodes in one step, each seeing the context and its own branch, and the longest branch that
// the large model would have written itself is accepted.
//
// The trees are real ones (EAGLE, Medusa and token recycling; tests/data/README.md), three requests in one batch:
//   lesson_09_draft_trees tests/data/draft_trees.txt
// Each node's output is compared with attention over its branch by hand. Then one branch a request is accepted: its
// keys and values move up behind the context, the rest of the tree is cut off, and a plain step goes on from there.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "weft/attention.h"
#include "weft/block_sparse.h"

using namespace weft;

namespace {

constexpr int kQueryHeads = 4, kHeads = 2, kDim = 32, kPage = 16, kPages = 40, kContext[] = {37, 160, 15};

struct Tree {
  std::string name;
  std::vector<int32_t> parent;  // -1: node 0, the last token of the text so far
};
std::vector<Tree> read_trees(const char* path) {
  std::ifstream file(path);
  std::vector<Tree> trees;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    Tree tree;
    size_t nodes = 0;
    in >> tree.name >> nodes;
    for (int32_t parent; tree.parent.size() < nodes && in >> parent;) tree.parent.push_back(parent);
    trees.push_back(tree);
  }
  return trees;
}

// The cache, and where token t of a request lies in it.
struct Cache {
  PageTable table{kPage, kPages};
  std::vector<float> k = std::vector<float>(kPages * kPage * kHeads * kDim), v = k;
  size_t slot(PageTable::RequestId request, int t) const {
    const int page = table.pages(request)[static_cast<size_t>(t / kPage)];
    return static_cast<size_t>((page * kPage + t % kPage) * kHeads * kDim);
  }
  KvCache tensors() const {
    const TensorView keys(k.data(), DType::fp32, {kPages, kPage, kHeads, kDim});
    return {keys, TensorView(v.data(), DType::fp32, keys.shape())};
  }
};

// One query head over these slots: the first element of its output.
double by_hand(const Cache& cache, const float* q, int head, const std::vector<size_t>& slots) {
  double sum = 0, mean = 0;
  for (const size_t slot : slots) {
    const size_t at = slot + static_cast<size_t>(head / (kQueryHeads / kHeads) * kDim);
    double s = 0;
    for (size_t d = 0; d < kDim; ++d) s += double{q[static_cast<size_t>(head * kDim) + d]} * double{cache.k[at + d]};
    const double p = std::exp(s / std::sqrt(double{kDim}));
    sum += p;
    mean += p * double{cache.v[at]};
  }
  return mean / sum;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<Tree> trees = read_trees(argc > 1 ? argv[1] : "tests/data/draft_trees.txt");
  if (trees.size() != 3) {
    std::fprintf(stderr, "usage: lesson_09_draft_trees tests/data/draft_trees.txt\n");
    return 2;
  }
  // Context and tree of each request in the cache, the tree's nodes as its last tokens.
  Cache cache;
  std::vector<PageTable::RequestId> requests;
  std::vector<int32_t> qo_indptr{0}, parent;
  for (size_t r = 0; r < 3; ++r) {
    const auto nodes = static_cast<int>(trees[r].parent.size());
    requests.push_back(cache.table.add());
    cache.table.append(requests[r], kContext[r] + nodes);
    for (int t = 0; t < kContext[r] + nodes; ++t)
      for (size_t i = 0; i < kHeads * kDim; ++i) {
        const auto x = static_cast<float>(static_cast<size_t>(t) * 61 + i * 7 + r * 911);
        cache.k[cache.slot(requests[r], t) + i] = 2 * std::sin(x);
        cache.v[cache.slot(requests[r], t) + i] = std::cos(0.3f * x);
      }
    qo_indptr.push_back(qo_indptr.back() + nodes);
    parent.insert(parent.end(), trees[r].parent.begin(), trees[r].parent.end());
  }
  const int rows = qo_indptr.back();
  std::vector<float> q(static_cast<size_t>(rows * kQueryHeads * kDim)), o(q.size());
  for (size_t i = 0; i < q.size(); ++i) q[i] = std::sin(0.7f * static_cast<float>(i));

  // Every node of every tree in one run. Tree, context and positions are lists of blocks; there is no mask.
  AttentionSpec spec{.head_dim_qk = kDim, .head_dim_vo = kDim, .kv_form = KvForm::block_sparse};
  const auto attend_into = [&](const PlanInput& input, const std::vector<float>& queries,
                               const std::vector<float>& out) {
    const AttentionKernel kernel = build(spec, Device::cpu());
    const Plan plan = kernel.plan(input);
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    const TensorView query(queries.data(), DType::fp32, {input.qo_indptr.back(), kQueryHeads, kDim});
    kernel.run(plan, {.q = query, .kv = cache.tensors(), .o = TensorView(out.data(), DType::fp32, query.shape())},
               workspace);
  };
  const BlockLists lists = blocks_from_tree(cache.table.view(requests), qo_indptr, parent);
  const BlockSparse blocks = lists.view();
  attend_into({.num_qo_heads = kQueryHeads, .num_kv_heads = kHeads, .qo_indptr = qo_indptr, .blocks = &blocks}, q, o);

  bool right = true;
  std::vector<std::vector<int>> accepted;  // of each request: the branch to its deepest node
  for (size_t r = 0; r < 3; ++r) {
    std::vector<int> deepest;
    for (int node = 0; node < static_cast<int>(trees[r].parent.size()); ++node) {
      std::vector<int> branch;
      for (int at = node; at >= 0; at = trees[r].parent[static_cast<size_t>(at)]) branch.insert(branch.begin(), at);
      std::vector<size_t> slots;
      for (int t = 0; t < kContext[r]; ++t) slots.push_back(cache.slot(requests[r], t));
      for (const int at : branch) slots.push_back(cache.slot(requests[r], kContext[r] + at));
      const size_t row = static_cast<size_t>((qo_indptr[r] + node) * kQueryHeads * kDim);
      for (int head = 0; head < kQueryHeads; ++head)
        right = right && std::abs(double{o[row + static_cast<size_t>(head * kDim)]} -
                                  by_hand(cache, &q[row], head, slots)) < 1e-5;
      if (branch.size() > deepest.size()) deepest = branch;
    }
    std::printf("%-24s %2zu nodes behind %3d tokens, deepest branch %zu\n", trees[r].name.c_str(),
                trees[r].parent.size(), kContext[r], deepest.size());
    accepted.push_back(deepest);
  }

  // Accept a branch of each: nodes stand in the order of the tree, so each moves to its own place or further up.
  for (size_t r = 0; r < 3; ++r) {
    for (size_t i = 0; i < accepted[r].size(); ++i) {
      const size_t from = cache.slot(requests[r], kContext[r] + accepted[r][i]),
                   to = cache.slot(requests[r], kContext[r] + static_cast<int>(i));
      for (std::vector<float>* side : {&cache.k, &cache.v})
        for (size_t d = 0; d < kHeads * kDim; ++d) (*side)[to + d] = (*side)[from + d];
    }
    cache.table.truncate(requests[r], kContext[r] + static_cast<int64_t>(accepted[r].size()));
  }

  // The next step is plain: its query sees all that was kept.
  spec.kv_form = KvForm::paged;
  const std::vector<int32_t> one_each{0, 1, 2, 3};
  std::vector<float> next_q(q.begin(), q.begin() + 3 * kQueryHeads * kDim), next_o(next_q.size());
  attend_into(
      {.num_qo_heads = kQueryHeads, .num_kv_heads = kHeads, .qo_indptr = one_each, .pages = cache.table.view(requests)},
      next_q, next_o);
  for (size_t r = 0; r < 3; ++r) {
    std::vector<size_t> slots;
    for (int t = 0; t < cache.table.length(requests[r]); ++t) slots.push_back(cache.slot(requests[r], t));
    const float* row = &next_q[r * kQueryHeads * kDim];
    const double got = next_o[r * kQueryHeads * kDim], expected = by_hand(cache, row, 0, slots);
    std::printf("after %zu accepted tokens: o = %.6f, by hand %.6f\n", accepted[r].size(), got, expected);
    right = right && std::abs(got - expected) < 1e-5;
  }
  return right ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
