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

}  // namespace

AttentionTables attention_tables(const AttentionItems& items, const Step& step, const AttentionForm& form) {
  const PageTableView pages = step.pages.get();
  AttentionTables tables{
      .worker_indptr = items.worker_indptr, .num_states = items.num_states, .page_size = pages.page_size};
  tables.pages.assign(pages.kv_page_indices.begin(), pages.kv_page_indices.end());
  for (const AttentionItem& item : items.items) {
    ensure((item.row_end - item.row_begin) * form.group <= kItemRows, "an item of {} rows of {} heads",
           item.row_end - item.row_begin, form.group);
    const auto request = static_cast<size_t>(item.request);
    tables.items.push_back(card_item(item, items.requests[request], pages.kv_page_indptr[request], form.window));
  }

  // Counted, then filled in the order of keys.
  std::vector<size_t> order(items.items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return items.items[i].kv_begin; });
  const auto for_states = [&](const auto& each) {  // each(list, state)
    for (const size_t i : order) {
      const AttentionItem& item = items.items[i];
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
  return tables;
}

}  // namespace weft::decode::fused
