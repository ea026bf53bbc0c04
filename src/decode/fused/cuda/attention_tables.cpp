#include "decode/fused/cuda/attention_tables.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace weft::decode::fused {
namespace {

// Tokens [begin, end) that a row sees.
struct Seen {
  int begin, end;
};
Seen seen_by(const StepRequest& request, int row, int window) {
  const int position = request.cached() + row - request.first_row;
  return {window > 0 ? std::max(0, position - window + 1) : 0, position + 1};
}

CardItem card_item(const AttentionItem& item, const StepRequest& request, int first_page, int window) {
  // Rows see more from one to the next, at either end.
  const int first_seen = std::max(item.kv_begin, seen_by(request, item.row_begin, window).begin);
  const int kv_end = std::min(item.kv_end, seen_by(request, item.row_end - 1, window).end);
  CardItem card{.row_begin = item.row_begin,
                .row_end = item.row_end,
                .first_row = request.first_row,
                .kv_head = item.kv_head,
                .kv_begin = item.kv_begin,
                .kv_end = kv_end,
                .first_seen = first_seen,
                .cached = request.cached(),
                .first_page = first_page,
                .first_state = item.first_state};
  if (first_seen >= kv_end) card.kv_end = card.first_seen = card.kv_begin;  // nothing to attend
  return card;
}

// Deals a worker's items to rounds, and lists their heads: once for neighbours that have the same.
class Rounds {
 public:
  Rounds(AttentionTables& tables, const AttentionForm& form) : tables_(tables), form_(form) {}

  void add_worker(int begin, int end) {
    tables_.round_indptr.push_back(static_cast<int32_t>(tables_.rounds.size()));
    const CardItem* last = nullptr;  // of the round
    for (int i = begin; i < end; ++i) {
      CardItem& item = tables_.items[static_cast<size_t>(i)];
      if (last == nullptr || in_round() + needed(item, last) > form_.most_heads) {
        last = nullptr;
        tables_.rounds.push_back({.item = i, .head = static_cast<int>(tables_.heads.size())});
        ensure(needed(item, nullptr) <= form_.most_heads, "an item of {} heads", needed(item, nullptr));
      }
      add(item, last);
      last = &item;
    }
  }
  void end() {
    tables_.round_indptr.push_back(static_cast<int32_t>(tables_.rounds.size()));
    tables_.rounds.push_back(
        {.item = static_cast<int>(tables_.items.size()), .head = static_cast<int>(tables_.heads.size())});
  }

 private:
  int in_round() const { return static_cast<int>(tables_.heads.size()) - tables_.rounds.back().head; }
  static bool has_queries_of(const CardItem& item, const CardItem* last) {
    return last != nullptr && last->row_begin == item.row_begin && last->row_end == item.row_end &&
           last->kv_head == item.kv_head;
  }
  static int own_of(const CardItem& item) { return std::max(0, item.kv_end - item.own_begin()); }
  int needed(const CardItem& item, const CardItem* last) const {
    return (has_queries_of(item, last) ? 0 : (item.row_end - item.row_begin) * form_.group) + 2 * own_of(item);
  }
  void add(CardItem& item, const CardItem* last) {
    item.first_query = has_queries_of(item, last) ? last->first_query : in_round();
    if (!has_queries_of(item, last))
      for (int row = item.row_begin; row < item.row_end; ++row)
        for (int i = 0; i < form_.group; ++i)
          tables_.heads.push_back({.row = row, .head = item.kv_head * form_.group + i});
    item.first_own = in_round();
    const int num_qo_heads = form_.num_kv_heads * form_.group;
    for (int token = item.own_begin(); token < item.kv_end; ++token) {
      const int row = item.first_row + token - item.cached;
      const bool is_appended = row >= item.row_begin;  // else by another item, which comes before
      const auto page = static_cast<size_t>(item.first_page + token / tables_.page_size);
      for (const int first : {num_qo_heads, num_qo_heads + form_.num_kv_heads})
        tables_.heads.push_back({.row = row,
                                 .head = first + item.kv_head,
                                 .page = is_appended ? tables_.pages[page] : -1,
                                 .slot = token % tables_.page_size});
    }
  }

  AttentionTables& tables_;
  const AttentionForm& form_;
};

}  // namespace

AttentionTables attention_tables(const AttentionItems& items, const Step& step, const AttentionForm& form) {
  AttentionTables tables;
  update_tables(items, step, form, tables);
  return tables;
}

void update_tables(const AttentionItems& items, const Step& step, const AttentionForm& form, AttentionTables& tables) {
  const PageTableView pages = step.pages.get();
  tables.worker_indptr = items.worker_indptr;
  tables.num_states = items.num_states;
  tables.page_size = pages.page_size;
  tables.pages.assign(pages.kv_page_indices.begin(), pages.kv_page_indices.end());
  tables.items.clear();
  tables.rounds.clear();
  tables.round_indptr.clear();
  tables.heads.clear();
  for (const AttentionItem& item : items.items) {
    ensure((item.row_end - item.row_begin) * form.group <= kItemRows, "an item of {} rows of {} heads",
           item.row_end - item.row_begin, form.group);
    const auto request = static_cast<size_t>(item.request);
    tables.items.push_back(card_item(item, items.requests[request], pages.kv_page_indptr[request], form.window));
  }
  Rounds rounds(tables, form);
  for (size_t w = 0; w + 1 < items.worker_indptr.size(); ++w)
    rounds.add_worker(items.worker_indptr[w], items.worker_indptr[w + 1]);
  rounds.end();

  // The last step's order, if it is this one's, too.
  std::vector<int32_t>& order = tables.by_keys;
  const auto comes_before = [&](int32_t a, int32_t b) {
    const int of_a = items.items[static_cast<size_t>(a)].kv_begin, of_b = items.items[static_cast<size_t>(b)].kv_begin;
    return of_a != of_b ? of_a < of_b : a < b;
  };
  if (order.size() != items.items.size() || !std::ranges::is_sorted(order, comes_before)) {
    order.resize(items.items.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, comes_before);
  }
  // Counted, then filled in the order of keys.
  const auto for_states = [&](const auto& each) {  // each(list, state)
    for (const int32_t i : order) {
      const AttentionItem& item = items.items[static_cast<size_t>(i)];
      for (int row = item.row_begin; row < item.row_end; ++row) {
        const Seen seen = seen_by(items.requests[static_cast<size_t>(item.request)], row, form.window);
        if (seen.end <= item.kv_begin || seen.begin >= item.kv_end) continue;
        each(static_cast<size_t>(row * form.num_kv_heads + item.kv_head),
             item.first_state + (row - item.row_begin) * form.group);
      }
    }
  };
  std::vector<int32_t>& indptr = tables.state_indptr;
  indptr.assign(static_cast<size_t>(step.rows() * form.num_kv_heads + 1), 0);
  for_states([&](size_t list, int) { ++indptr[list + 1]; });
  std::partial_sum(indptr.begin(), indptr.end(), indptr.begin());
  tables.states.resize(static_cast<size_t>(indptr.back()));
  std::vector<int32_t> next(indptr.begin(), indptr.end() - 1);
  for_states([&](size_t list, int state) { tables.states[static_cast<size_t>(next[list]++)] = state; });
}

}  // namespace weft::decode::fused
