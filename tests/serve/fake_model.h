// A model in fifty lines: the next token follows from all tokens before it, pages are counted, and nothing may be
// wrong.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>

#include "ops/draw.h"
#include "serve/engine.h"
#include "serve/model_runner.h"
#include "weft/page_table.h"

namespace weft::testing {

inline constexpr int kFakeVocab = 50, kFakeEnd = 0;

// Never the end: a logit_bias makes it come.
inline int32_t fake_next(std::span<const int32_t> tokens) {
  uint64_t hash = 1469598103934665603u;
  for (const int32_t token : tokens) hash = (hash ^ static_cast<uint64_t>(token + 1)) * 1099511628211u;
  return static_cast<int32_t>(1 + (hash >> 33) % (kFakeVocab - 1));
}

class FakeModel : public serve::ModelRunner {
 public:
  FakeModel(int page_size, int64_t num_pages, int64_t context = 256, bool reproducible = false)
      : limits_{page_size, num_pages, context, kFakeVocab, reproducible}, pages_(page_size, num_pages) {}

  Limits limits() const override { return limits_; }
  int64_t num_free_pages() const override { return pages_.num_free_pages(); }
  Sequence add(std::span<const int32_t> pages) override {
    const PageTable::RequestId request = pages_.add(pages);
    std::vector<int32_t> tokens;
    for (const int32_t page : pages) tokens.insert(tokens.end(), written_.at(page).begin(), written_.at(page).end());
    return put(request, std::move(tokens));
  }
  Sequence fork(Sequence sequence, int64_t tokens) override {
    const Held& other = sequences_.at(sequence);
    if (tokens > static_cast<int64_t>(other.tokens.size())) throw std::logic_error("fork beyond the end");
    const PageTable::Fork forked = pages_.fork(other.request, tokens);
    return put(forked.request, {other.tokens.begin(), other.tokens.begin() + tokens});
  }
  void release(Sequence sequence) override {
    pages_.release(sequences_.at(sequence).request);
    sequences_.erase(sequence);
  }
  std::span<const int32_t> pages(Sequence sequence) const override {
    return pages_.pages(sequences_.at(sequence).request);
  }
  void hold(std::span<const int32_t> pages) override {
    pages_.hold(pages);
    held_.insert(pages.begin(), pages.end());
  }
  void unhold(std::span<const int32_t> pages) override {
    pages_.unhold(pages);
    for (const int32_t page : pages) held_.extract(page);  // once
  }
  std::span<float> run(std::span<const Piece> pieces, const SharedPrefixes& prefixes) override {
    ++steps;
    expect_shared(pieces, prefixes);
    shared_nodes += static_cast<int64_t>(prefixes.parent.size());
    if (fail_at_step == steps) throw std::bad_alloc();
    int64_t rows = 0;
    for (const Piece& piece : pieces) {
      if (std::count(piece.tokens.begin(), piece.tokens.end(), poison) > 0) throw std::runtime_error("poison");
      rows += piece.logit_rows;
    }
    logits_.assign(static_cast<size_t>(rows * kFakeVocab), 0.f);
    float* row = logits_.data();
    for (const Piece& piece : pieces) {
      Held& held = sequences_.at(piece.sequence);
      pages_.append(held.request, static_cast<int64_t>(piece.tokens.size()));
      computed += static_cast<int64_t>(piece.tokens.size());
      for (size_t i = 0; i < piece.tokens.size(); ++i) {
        held.tokens.push_back(piece.tokens[i]);
        if (static_cast<int64_t>(piece.tokens.size() - i) > piece.logit_rows) continue;
        row[fake_next(held.tokens)] = 10.f;
        if (piece.tokens[i] == nan_after) std::fill(row, row + kFakeVocab, std::nanf(""));
        row += kFakeVocab;
      }
      note_pages(held);
      most_rows = std::max(most_rows, static_cast<int64_t>(piece.tokens.size()));
    }
    return logits_;
  }
  bool finds_ids() const override { return gives_ids; }
  std::span<const int32_t> run_greedy(std::span<const Piece> pieces, const SharedPrefixes& prefixes) override {
    ++greedy_steps;
    const std::span<const float> rows = run(pieces, prefixes);
    ids_.clear();
    for (size_t row = 0; row < rows.size(); row += kFakeVocab) {
      const auto* const first = rows.data() + row;
      const auto largest = std::max_element(first, first + kFakeVocab);
      ids_.push_back(std::isnan(*largest) ? -1 : static_cast<int32_t>(largest - first));
    }
    return ids_;
  }
  std::span<const int32_t> run_sampled(std::span<const Piece> pieces, std::span<const TokenDraw> draws,
                                       const SharedPrefixes& prefixes) override {
    ++sampled_steps;
    const std::span<const float> rows = run(pieces, prefixes);
    ids_.clear();
    for (size_t i = 0; i < draws.size(); ++i)
      ids_.push_back(ops::RowDraw().draw(rows.subspan(i * kFakeVocab, kFakeVocab), draws[i]));
    return ids_;
  }
  bool use_idle_time() override { return idle_work-- > 0; }
  size_t num_sequences() const { return sequences_.size(); }
  std::set<int32_t> held_pages() const { return {held_.begin(), held_.end()}; }
  // That sequences have or somebody holds.
  std::set<int32_t> used_pages() const {
    std::set<int32_t> used = held_pages();
    for (const auto& [sequence, held] : sequences_) {
      const auto table = pages_.pages(held.request);
      used.insert(table.begin(), table.end());
    }
    return used;
  }

  bool gives_ids = false;  // where they are enough
  int64_t greedy_steps = 0, sampled_steps = 0;
  int64_t steps = 0, computed = 0, most_rows = 0, shared_nodes = 0, fail_at_step = -1;
  std::atomic<int> idle_work = 0;  // how often there is some
  int32_t poison = -1;             // a token that makes a step throw
  int32_t nan_after = -1;          // a token after which no logit is a number

 private:
  struct Held {
    PageTable::RequestId request;
    std::vector<int32_t> tokens;
  };
  // Who is said to share pages has the same ones, and a token behind them.
  void expect_shared(std::span<const Piece> pieces, const SharedPrefixes& prefixes) const {
    if (prefixes.node_of_request.empty()) return;
    ASSERT_EQ(prefixes.node_of_request.size(), pieces.size());
    std::map<int32_t, std::vector<int32_t>> pages_of_node;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const auto table = pages(pieces[i].sequence);
      for (int32_t node = prefixes.node_of_request[i]; node >= 0; node = prefixes.parent[static_cast<size_t>(node)]) {
        const auto count = static_cast<size_t>(prefixes.num_pages[static_cast<size_t>(node)]);
        ASSERT_LE(count, table.size());
        const std::vector<int32_t> shared(table.begin(), table.begin() + static_cast<int64_t>(count));
        EXPECT_EQ(pages_of_node.emplace(node, shared).first->second, shared);
        EXPECT_LT(prefixes.parent[static_cast<size_t>(node)], node);
      }
    }
  }
  // What the whole pages of a sequence hold.
  void note_pages(const Held& held) {
    const auto size = static_cast<size_t>(limits_.page_size);
    const auto table = pages_.pages(held.request);
    for (size_t i = 0; (i + 1) * size <= held.tokens.size(); ++i)
      written_[table[i]].assign(held.tokens.begin() + static_cast<int64_t>(i * size),
                                held.tokens.begin() + static_cast<int64_t>((i + 1) * size));
  }
  Sequence put(PageTable::RequestId request, std::vector<int32_t> tokens) {
    sequences_.emplace(next_, Held{request, std::move(tokens)});
    return next_++;
  }
  Limits limits_;
  PageTable pages_;
  std::map<Sequence, Held> sequences_;
  std::map<int32_t, std::vector<int32_t>> written_;
  std::multiset<int32_t> held_;
  Sequence next_ = 0;
  std::vector<float> logits_;
  std::vector<int32_t> ids_;
};

inline serve::Vocabulary fake_vocabulary() {
  return {.text =
              [](int32_t id, bool, bool special) {
                return id == kFakeEnd ? std::string(special ? "<end>" : "") : "<" + std::to_string(id) + ">";
              },
          .ends = {kFakeEnd}};
}

// What a greedy request has to answer.
inline std::vector<int32_t> fake_answer(std::vector<int32_t> tokens, size_t count) {
  std::vector<int32_t> answer;
  while (answer.size() < count) {
    answer.push_back(fake_next(tokens));
    tokens.push_back(answer.back());
  }
  return answer;
}

// What came of a request.
struct Collected {
  std::map<int, std::vector<int32_t>> ids;  // by choice
  std::map<int, std::string> text, finish;
  std::vector<serve::Update> updates;
  bool last = false;
  serve::OnUpdate handler() {
    return [this](const serve::Update& update) {
      EXPECT_FALSE(last) << "an update after the last";
      if (update.id >= 0) ids[update.choice].push_back(update.id);
      text[update.choice] += update.text;
      if (!update.finish.empty()) finish[update.choice] = update.finish;
      last = update.last;
      updates.push_back(update);
    };
  }
};

inline std::vector<int32_t> prompt_of(size_t size, int seed = 1) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < size; ++i)
    ids.push_back(static_cast<int32_t>(1 + (i * 7 + static_cast<size_t>(seed) * 13) % (kFakeVocab - 1)));
  return ids;
}

}  // namespace weft::testing
