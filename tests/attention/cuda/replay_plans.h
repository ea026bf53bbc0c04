// Random plans within bounds, for graphs that replay whichever lies in the workspace.
#pragma once

#include <algorithm>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/attention/kernels/problem.h"
#include "weft/block_sparse.h"

namespace weft::testing {

// What plans have in common.
struct ReplayCase {
  std::string name;
  DType type = DType::bf16;
  KvForm form = KvForm::paged;
  Mask mask = Mask::causal;
  PlanMode mode = PlanMode::balanced;
  int levels = 1;                        // at most
  int qo_len = 0;                        // of every request; 0: any
  int head_dim = 64, most_tokens = 704;  // tokens in whole pages
};

inline void PrintTo(const ReplayCase& of, std::ostream* out) { *out << of.name; }

class RandomPlans {
 public:
  static constexpr int kPageSize = 16, kMostRequests = 4, kMostWorkers = 8, kBlockRows = 3;

  RandomPlans(const ReplayCase& of, unsigned seed) : of_(of), random_(seed), problem_(longest(of)) {
    const PlanInput all = problem_.input(1);
    pool_.assign(all.pages.kv_page_indices.begin(), all.pages.kv_page_indices.end());
    num_pages_ = all.pages.num_pages;
    bounds_ = {.max_requests = kMostRequests,
               .max_rows = of.qo_len > 0 ? kMostRequests * of.qo_len : 10,
               .max_qo_len = of.qo_len,
               .max_pages = kMostRequests * most_pages(),
               .max_levels = of.levels,
               .max_kv_len = of.most_tokens,
               .page_size = kPageSize,
               .num_qo_heads = 4 * kv_heads(of),
               .num_kv_heads = kv_heads(of),
               .workers = kMostWorkers,
               .mode = of.mode,
               .fixed_split_size = of.mode == PlanMode::fixed_split ? 64 : 0};
    if (of.form != KvForm::block_sparse) return;
    bounds_.block_rows = kBlockRows;
    bounds_.positions_per_block = 1;
    bounds_.max_pages = kMostLists * most_pages();
    bounds_.max_bits_bytes = bounds_.max_pages * kBytesOfBits;
  }

  Problem& problem() { return problem_; }
  const PlanBounds& bounds() const { return bounds_; }
  AttentionSpec spec() const {
    AttentionSpec spec = problem_.spec();
    spec.kv_form = of_.form;
    return spec;
  }

  // Of so many requests and workers, or any number.
  Plan next(const AttentionKernel& kernel, std::optional<int> requests = {}, std::optional<int> workers = {}) {
    input_ = {.num_qo_heads = bounds_.num_qo_heads, .num_kv_heads = bounds_.num_kv_heads};
    input_.num_workers = workers.value_or(1 + below(kMostWorkers));
    input_.mode = of_.mode;
    input_.fixed_split_size = bounds_.fixed_split_size;
    input_.bounds = &bounds_;
    make_rows(requests.value_or(below(kMostRequests + 1)));
    input_.qo_indptr = qo_indptr_;
    if (of_.form == KvForm::block_sparse)
      make_blocks();
    else
      make_pages();
    return kernel.plan(input_);
  }
  int64_t num_rows() const { return qo_indptr_.back(); }

 private:
  static constexpr int kMostLists = 12;  // 10 rows of 4 requests have at most 6 blocks, of 2 heads each
  static constexpr int64_t kBytesOfBits = kBlockRows * kPageSize / 8;

  struct Pages {
    std::vector<int32_t> indptr{0}, ids, last;
  };

  static int kv_heads(const ReplayCase& of) { return of.form == KvForm::latent ? 1 : 2; }
  static Case longest(const ReplayCase& of) {
    Case c;
    c.q_dtype = c.kv_dtype = c.o_dtype = of.type;
    c.form = of.form == KvForm::latent ? KvForm::latent : KvForm::paged;
    c.page_size = kPageSize;
    c.group = 4;
    c.kv_heads = kv_heads(of);
    c.head_dim_vo = of.head_dim;
    c.head_dim_qk = of.head_dim + (of.form == KvForm::latent ? 8 : 0);
    c.mask = of.mask;
    for (const int rows : {3, 1, 4, 2}) c.lengths.push_back({of.qo_len > 0 ? of.qo_len : rows, of.most_tokens});
    return c;
  }

  int most_pages() const { return of_.most_tokens / kPageSize; }
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  int32_t any_page() { return pool_[static_cast<size_t>(below(static_cast<int>(pool_.size())))]; }

  void make_rows(int requests) {
    qo_indptr_ = {0};
    for (int r = 0; r < requests; ++r) {
      const int left = static_cast<int>(bounds_.max_rows) - qo_indptr_.back();
      qo_indptr_.push_back(qo_indptr_.back() + (of_.qo_len > 0 ? of_.qo_len : below(std::min(left, 4) + 1)));
    }
  }

  void add(Pages& to, int tokens) {
    const int pages = (tokens + kPageSize - 1) / kPageSize;
    for (int i = 0; i < pages; ++i) to.ids.push_back(any_page());
    to.indptr.push_back(static_cast<int32_t>(to.ids.size()));
    to.last.push_back(tokens == 0 ? 0 : tokens - (pages - 1) * kPageSize);
  }
  PageTableView view(const Pages& pages) const { return {kPageSize, num_pages_, pages.indptr, pages.ids, pages.last}; }

  // Requests of an entry that shares pages, one after another, and the pages that each has alone.
  void make_pages() {
    const int requests = static_cast<int>(qo_indptr_.size()) - 1;
    own_ = shared_ = {};
    shared_rows_ = {0};
    mask_indptr_ = {0};
    const bool shares = of_.levels > 1 && below(4) != 0;
    for (int r = 0, shared = 0, left = 0; r < requests; ++r, --left) {
      if (shares && left == 0) {
        left = 1 + below(requests - r);
        shared = below(most_pages() / 2) * kPageSize;
        add(shared_, shared);
        shared_rows_.push_back(qo_indptr_[static_cast<size_t>(r + left)]);
      }
      const int own = below(8) == 0 ? 0 : 1 + below(of_.most_tokens - shared);
      add(own_, own);
      mask_indptr_.push_back(mask_indptr_.back() +
                             int64_t{qo_indptr_[static_cast<size_t>(r) + 1] - qo_indptr_[static_cast<size_t>(r)]} *
                                 (shared + own));
    }
    if (of_.mask == Mask::custom) input_.mask_indptr = mask_indptr_;
    if (!shares) {
      input_.pages = view(own_);
      return;
    }
    levels_ = {{shared_rows_, view(shared_)}, {qo_indptr_, view(own_)}};
    input_.qo_indptr = {};
    input_.levels = levels_;
  }

  void make_blocks() {
    lists_ = {};
    lists_.block_rows = kBlockRows;
    lists_.block_cols = kPageSize;
    lists_.num_blocks = num_pages_;
    int num_lists = 0;
    for (size_t r = 0; r + 1 < qo_indptr_.size(); ++r)
      num_lists += (qo_indptr_[r + 1] - qo_indptr_[r] + kBlockRows - 1) / kBlockRows;
    if (below(2) == 0) num_lists *= bounds_.num_kv_heads;
    const bool has_bits = below(2) == 0, has_positions = below(2) == 0;
    for (int list = 0; list < num_lists; ++list) {
      const int blocks = below(most_pages() + 1);
      for (int i = 0; i < blocks; ++i) add_block(has_bits, has_positions);
      lists_.block_indptr.push_back(static_cast<int32_t>(lists_.block_indices.size()));
      lists_.last_block_len.push_back(blocks == 0 ? 0 : 1 + below(kPageSize));
    }
    for (int row = 0; row < qo_indptr_.back() && has_positions; ++row)
      lists_.q_positions.push_back(below(of_.most_tokens));
    blocks_ = lists_.view();
    input_.blocks = &blocks_;
  }
  void add_block(bool has_bits, bool has_positions) {
    lists_.block_indices.push_back(any_page());
    if (has_positions) lists_.kv_positions.push_back(below(of_.most_tokens - kPageSize));
    if (!has_bits) return;
    const bool is_whole = below(2) == 0;
    lists_.bits_index.push_back(is_whole ? -1 : static_cast<int32_t>(lists_.bits.size()) / int32_t{kBytesOfBits});
    for (int64_t b = 0; b < kBytesOfBits && !is_whole; ++b) lists_.bits.push_back(static_cast<uint8_t>(random_()));
  }

  ReplayCase of_;
  std::mt19937 random_;
  Problem problem_;
  std::vector<int32_t> pool_;
  int64_t num_pages_ = 0;
  PlanBounds bounds_;
  // What the last plan was made from.
  PlanInput input_;
  std::vector<int32_t> qo_indptr_{0}, shared_rows_;
  Pages own_, shared_;
  std::vector<int64_t> mask_indptr_;
  std::vector<Level> levels_;
  BlockLists lists_;
  BlockSparse blocks_;
};

}  // namespace weft::testing
