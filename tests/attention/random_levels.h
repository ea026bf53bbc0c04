// Random levels: requests whose keys are a path through a tree, with the arrays that PlanInput points to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "weft/attention.h"

namespace weft::testing {

struct LevelOptions {
  int num_levels = 2, requests = 4, page_size = 16;
  int max_qo_len = 5, max_pages = 6;  // of an entry
  int border = 1;                     // levels begin at multiples of this
  bool shuffled = false;              // requests that share do not stand together in q
  bool whole_pages = false;           // of every level but the last
};

class RandomLevels {
 public:
  RandomLevels(const LevelOptions& options, std::mt19937& random) : options_(options) {
    const auto draw = [&](int from, int to) { return from + static_cast<int>(random() % (to - from + 1)); };
    qo_indptr_ = {0};
    std::vector<int> qo_len;
    for (int r = 0; r < options.requests; ++r) {
      qo_len.push_back(draw(0, 3) == 0 ? draw(0, options.max_qo_len) : 1);
      qo_indptr_.push_back(qo_indptr_.back() + qo_len.back());
    }
    order_.resize(static_cast<size_t>(options.requests));
    std::iota(order_.begin(), order_.end(), 0);
    if (options.shuffled) std::shuffle(order_.begin(), order_.end(), random);
    kv_len_.assign(qo_len.size(), 0);
    pages_.resize(qo_len.size());
    // Entry borders in places of the order; each level keeps those of the one before.
    std::vector<char> border(qo_len.size() + 1, 0);
    border.front() = border.back() = 1;
    std::vector<int32_t> page_count;
    for (int l = 0; l < options.num_levels; ++l) {
      const bool last = l == options.num_levels - 1;
      Arrays& level = levels_.emplace_back();
      for (size_t i = 1; i < qo_len.size(); ++i) border[i] = border[i] || (last ? draw(0, 7) > 0 : draw(0, 2) == 0);
      int rows = 0;
      for (size_t begin = 0, end; begin < qo_len.size(); begin = end) {
        for (end = begin + 1; border[end] == 0;) ++end;
        int len = draw(0, 4) == 0 ? 0 : draw(1, options.max_pages * options.page_size);
        if (!last) len -= len % options.border;
        if (!last && options.whole_pages) len -= len % options.page_size;
        const int pages = (len + options.page_size - 1) / options.page_size;
        for (int i = 0; i < pages; ++i) level.ids.push_back(num_pages_++);
        for (size_t place = begin; place < end; ++place) {
          const auto r = static_cast<size_t>(order_[place]);
          rows += qo_len[r];
          if (qo_len[r] > 0) kv_len_[r] += len;
          pages_[r].insert(pages_[r].end(), level.ids.end() - pages, level.ids.end());
        }
        level.qo_indptr.push_back(rows);
        level.indptr.push_back(static_cast<int32_t>(level.ids.size()));
        level.last_page_len.push_back(len == 0 ? 0 : (len - 1) % options.page_size + 1);
      }
    }
    std::vector<int32_t> shuffled(static_cast<size_t>(num_pages_ + 3));  // the rest is dead
    std::iota(shuffled.begin(), shuffled.end(), 0);
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    num_pages_ += 3;
    for (Arrays& level : levels_)
      for (int32_t& id : level.ids) id = shuffled[static_cast<size_t>(id)];
    for (std::vector<int32_t>& ids : pages_)
      for (int32_t& id : ids) id = shuffled[static_cast<size_t>(id)];
  }

  // Valid as long as this lives.
  void give(PlanInput& input) {
    views_.clear();
    for (const Arrays& level : levels_)
      views_.push_back(
          {level.qo_indptr, {options_.page_size, num_pages_, level.indptr, level.ids, level.last_page_len}});
    input.qo_indptr = qo_indptr_;
    input.levels = views_;
    input.request_order = order_;
    input.pages = {};
  }
  // The same keys without levels; needs whole_pages.
  void give_plain(PlanInput& input) {
    plain_ = {};
    for (size_t r = 0; r < pages_.size(); ++r) {
      // A request without query tokens is in no level.
      const bool attends = qo_indptr_[r] < qo_indptr_[r + 1];
      if (attends) plain_.ids.insert(plain_.ids.end(), pages_[r].begin(), pages_[r].end());
      plain_.indptr.push_back(static_cast<int32_t>(plain_.ids.size()));
      plain_.last_page_len.push_back(kv_len_[r] == 0 ? 0 : (kv_len_[r] - 1) % options_.page_size + 1);
    }
    input.qo_indptr = qo_indptr_;
    input.levels = {};
    input.request_order = {};
    input.pages = {options_.page_size, num_pages_, plain_.indptr, plain_.ids, plain_.last_page_len};
  }
  // `tokens` more to every request's last level, within its last page.
  bool grow(int tokens) {
    Arrays& last = levels_.back();
    for (const int32_t len : last.last_page_len)
      if (len + tokens < 1 || len + tokens > options_.page_size || len == 0) return false;
    for (int32_t& len : last.last_page_len) len += tokens;
    for (size_t r = 0; r < kv_len_.size(); ++r)
      if (qo_indptr_[r] < qo_indptr_[r + 1]) kv_len_[r] += tokens;
    return true;
  }

  const std::vector<int32_t>& qo_indptr() const { return qo_indptr_; }
  const std::vector<int>& kv_len() const { return kv_len_; }
  const std::vector<std::vector<int32_t>>& pages() const { return pages_; }
  int num_pages() const { return num_pages_; }
  int64_t num_page_ids() const {
    size_t n = 0;
    for (const Arrays& level : levels_) n += level.ids.size();
    return static_cast<int64_t>(n);
  }

 private:
  struct Arrays {
    std::vector<int32_t> qo_indptr{0}, indptr{0}, ids, last_page_len;
  };
  LevelOptions options_;
  std::vector<int32_t> qo_indptr_, order_;
  std::vector<int> kv_len_;
  std::vector<std::vector<int32_t>> pages_;  // [requests]
  std::vector<Arrays> levels_;
  std::vector<Level> views_;
  Arrays plain_;
  int num_pages_ = 0;
};

}  // namespace weft::testing
