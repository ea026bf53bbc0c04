// fixed_split promises that a request has the same bits alone and in any batch, on any number of workers, with shared
// levels or without; balanced promises no such thing.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>

#include "problem.h"
#include "tests/support/sanitizers.h"
#include "weft/levels.h"

namespace weft {
namespace {

constexpr int kPageSize = 16, kPages = 400, kKvHeads = 2, kGroup = 4, kHeads = kKvHeads * kGroup, kDim = 64;
constexpr int kSplit = 128;

struct Request {
  int qo_len, kv_len;
  std::vector<int32_t> pages;
  unsigned seed;  // of its queries
};

// One pool, and batches of requests over it.
class Requests {
 public:
  explicit Requests(PlanMode mode)
      : mode_(mode),
        k_(static_cast<size_t>(kPages) * kPageSize * kKvHeads * kDim),
        v_(k_.size()),
        kernel_(build({.q_dtype = DType::bf16,
                       .kv_dtype = DType::bf16,
                       .o_dtype = DType::fp32,
                       .head_dim_qk = kDim,
                       .head_dim_vo = kDim,
                       .mask = Mask::causal},
                      Device::cpu())) {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (std::vector<uint16_t>* side : {&k_, &v_})
      for (size_t i = 0; i < side->size(); ++i)
        testing::put(side->data(), DType::bf16, static_cast<int64_t>(i), normal(random));
  }

  // The bytes of o and lse of each request.
  std::vector<std::string> run(const std::vector<Request>& batch, int workers, bool share = false) {
    std::vector<int32_t> qo_indptr{0}, indptr{0}, ids, last;
    std::vector<uint16_t> q;
    for (const Request& r : batch) {
      std::mt19937 random(r.seed);
      std::normal_distribution<double> normal;
      const size_t begin = q.size();
      q.resize(begin + static_cast<size_t>(r.qo_len) * kHeads * kDim);
      for (size_t i = begin; i < q.size(); ++i)
        testing::put(q.data(), DType::bf16, static_cast<int64_t>(i), normal(random));
      qo_indptr.push_back(qo_indptr.back() + r.qo_len);
      ids.insert(ids.end(), r.pages.begin(), r.pages.end());
      indptr.push_back(static_cast<int32_t>(ids.size()));
      last.push_back((r.kv_len - 1) % kPageSize + 1);
    }
    const int64_t rows = qo_indptr.back();
    std::vector<float> o(static_cast<size_t>(rows) * kHeads * kDim), lse(static_cast<size_t>(rows) * kHeads);
    PlanInput in{.num_qo_heads = kHeads,
                 .num_kv_heads = kKvHeads,
                 .qo_indptr = qo_indptr,
                 .pages = {kPageSize, kPages, indptr, ids, last},
                 .num_workers = workers,
                 .mode = mode_,
                 .fixed_split_size = mode_ == PlanMode::fixed_split ? kSplit : 0};
    const SharedLevels levels = share ? levels_from_page_tables(kernel_, in) : SharedLevels();
    num_shared_ += !levels.empty();
    const Plan plan = kernel_.plan(levels.apply(in));
    if (workspace_.bytes() < plan.workspace_bytes()) workspace_ = Workspace(Device::cpu(), 2 * plan.workspace_bytes());
    const std::vector<int64_t> pool{kPages, kPageSize, kKvHeads, kDim};
    kernel_.run(plan,
                {.q = TensorView(q.data(), DType::bf16, {rows, kHeads, kDim}),
                 .kv = {TensorView(k_.data(), DType::bf16, pool), TensorView(v_.data(), DType::bf16, pool)},
                 .o = TensorView(o.data(), DType::fp32, {rows, kHeads, kDim}),
                 .lse = TensorView(lse.data(), DType::fp32, {rows, kHeads})},
                workspace_, Stream::cpu(team_));
    std::vector<std::string> bytes;
    for (size_t r = 0; r < batch.size(); ++r) {
      const size_t begin = static_cast<size_t>(qo_indptr[r]) * kHeads,
                   n = static_cast<size_t>(batch[r].qo_len) * kHeads;
      bytes.emplace_back(reinterpret_cast<const char*>(o.data() + begin * kDim), n * kDim * sizeof(float));
      bytes.back().append(reinterpret_cast<const char*>(lse.data() + begin), n * sizeof(float));
    }
    return bytes;
  }
  int num_shared() const { return num_shared_; }

 private:
  PlanMode mode_;
  std::vector<uint16_t> k_, v_;
  AttentionKernel kernel_;
  WorkerTeam team_{2};
  Workspace workspace_;
  int num_shared_ = 0;
};

// Requests that are watched: a decode of several chunks, one of a single chunk, some appended tokens, a prefill.
std::vector<Request> watched() {
  std::vector<Request> all;
  for (const auto& [qo_len, kv_len] : {std::pair{1, 900}, {1, 100}, {3, 400}, {60, 300}}) {
    Request r{qo_len, kv_len, {}, static_cast<unsigned>(all.size())};
    for (int i = 0; i < (kv_len + kPageSize - 1) / kPageSize; ++i)
      r.pages.push_back(static_cast<int32_t>((i * 7 + static_cast<int>(all.size()) * 31) % kPages));
    all.push_back(r);
  }
  return all;
}

// The different results of each watched request over random batches.
std::vector<std::set<std::string>> results(Requests& pool, int batches) {
  const std::vector<Request> fixed = watched();
  std::vector<std::set<std::string>> seen(fixed.size());
  for (size_t w = 0; w < fixed.size(); ++w) seen[w].insert(pool.run({fixed[w]}, 1)[0]);
  std::mt19937 random(11);
  for (int i = 0; i < batches; ++i) {
    std::vector<Request> batch;
    std::map<size_t, size_t> place;  // of a watched request
    const int others = static_cast<int>(random() % 6);
    const auto add_others = [&](int n) {
      for (; n > 0; --n) {
        Request r{random() % 3 == 0 ? 1 + static_cast<int>(random() % 20) : 1,
                  1 + static_cast<int>(random() % 500),
                  {},
                  1000u + static_cast<unsigned>(random() % 1000)};
        const std::vector<int32_t>& leader = fixed[random() % fixed.size()].pages;
        const size_t pages = static_cast<size_t>((r.kv_len + kPageSize - 1) / kPageSize);
        if (random() % 2 == 0) r.pages.assign(leader.begin(), leader.begin() + std::min(pages, leader.size()));
        while (r.pages.size() < pages) r.pages.push_back(static_cast<int32_t>(random() % kPages));
        batch.push_back(r);
      }
    };
    for (size_t w = 0; w < fixed.size(); ++w) {
      if (random() % 2 == 0) add_others(others / 2);
      if (random() % 3 == 0) continue;
      place[w] = batch.size();
      batch.push_back(fixed[w]);
    }
    add_others(others);
    if (batch.empty()) continue;
    const std::vector<std::string> bytes = pool.run(batch, 1 + static_cast<int>(random() % 12), random() % 2 == 0);
    for (const auto& [w, at] : place) seen[w].insert(bytes[at]);
  }
  return seen;
}

TEST(Invariance, FixedSplitGivesOneResultInAThousandBatches) {
  Requests pool(PlanMode::fixed_split);
  constexpr int kBatches = testing::kUnderSanitizer ? 100 : 1000;
  for (const std::set<std::string>& seen : results(pool, kBatches)) EXPECT_EQ(seen.size(), 1u);
}

TEST(Invariance, BalancedDoesNotPromiseIt) {
  Requests pool(PlanMode::balanced);
  size_t most = 0;
  for (const std::set<std::string>& seen : results(pool, 50)) most = std::max(most, seen.size());
  EXPECT_GT(most, 1u);
}

}  // namespace
}  // namespace weft
