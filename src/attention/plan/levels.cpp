// Levels -> entries: rows that attend one page list together, each at its position among its requests' keys.
#include "attention/plan/plan_builder.h"
#include "base/check.h"

namespace weft::planner {
namespace {

// One entry a request, its keys the request's own.
void lay_plain(const Problem& p, PlanBuilder& builder) {
  builder.entries.resize(static_cast<size_t>(p.num_requests));
  const int32_t* first = p.page_size > 0 ? p.levels[0].pages.kv_page_indptr.data() : p.kv_indptr.data();
  for (int r = 0; r < p.num_requests; ++r)
    builder.entries[r] = {0,
                          p.qo_indptr[r],
                          p.qo_indptr[r + 1],
                          r,
                          r + 1,
                          0,
                          p.num_kv_heads,
                          0,
                          builder.kv_len[r],
                          first != nullptr ? first[r] : r * p.max_kv_len};
}

// Rows in the plan's order.
void order_rows(const Problem& p, PlanBuilder& builder) {
  builder.row_indptr.resize(static_cast<size_t>(p.num_requests) + 1);
  builder.row_indptr[0] = 0;
  for (int i = 0; i < p.num_requests; ++i)
    builder.row_indptr[i + 1] = builder.row_indptr[i] + p.qo_len(p.request_at(i));
}

// The entries of a level, and its tokens added to kv_len. Entries without rows are left out: nobody attends them.
void lay_level(const Problem& p, int l, PlanBuilder& builder) {
  const LevelInput& level = p.levels[l];
  const std::vector<int>& rows = builder.row_indptr;
  int place = 0;
  for (size_t e = 0; e < level.num_entries(); ++e) {
    const int begin = level.qo_indptr[e], end = level.qo_indptr[e + 1], len = builder.entry_len[level.first_entry + e];
    if (begin == end) continue;
    while (rows[place + 1] <= begin) ++place;
    Entry entry{l, begin, end, place, place, 0, p.num_kv_heads, 0, len, level.first_id + level.pages.kv_page_indptr[e]};
    entry.first_pos = builder.kv_len[p.request_at(place)];
    check(
        rows[place] == begin, ErrorCode::invalid_indptr,
        "levels[{}].qo_indptr[{}] = {}: lies within request {}, whose query tokens are [{}, {}); an entry holds whole "
        "requests",
        l, e, begin, p.request_at(place), rows[place], rows[place + 1]);
    for (; place < p.num_requests && rows[place] < end; ++place) {
      const int request = p.request_at(place);
      check(rows[place + 1] <= end, ErrorCode::invalid_indptr,
            "levels[{}].qo_indptr[{}] = {}: lies within request {}, whose query tokens are [{}, {}); an entry holds "
            "whole requests",
            l, e + 1, end, request, rows[place], rows[place + 1]);
      if (rows[place] == rows[place + 1]) continue;
      int& kv_len = builder.kv_len[request];
      check(kv_len == entry.first_pos || len == 0, ErrorCode::invalid_argument,
            "levels[{}]: entry {} begins at position {} of request {} and at {} of request {}; requests share pages at "
            "one position only",
            l, e, entry.first_pos, p.request_at(entry.place_begin), kv_len, request);
      check(int64_t{kv_len} + len <= kMaxKvLen, ErrorCode::invalid_argument,
            "request {}: {} tokens of KV up to levels[{}]; at most {} are allowed", request, int64_t{kv_len} + len, l,
            kMaxKvLen);
      kv_len += len;
    }
    entry.place_end = place;
    // A request's chunks begin at multiples of the split size, whoever shares them.
    if (p.mode == PlanMode::fixed_split && len > 0)
      check(entry.first_pos % p.fixed_split_size == 0, ErrorCode::invalid_argument,
            "levels[{}]: entry {} begins at position {}; under fixed_split levels begin at multiples of "
            "fixed_split_size = {}: round what is shared down, or plan without levels",
            l, e, entry.first_pos, p.fixed_split_size);
    builder.entries.push_back(entry);
  }
}

}  // namespace

void lay_entries(const Problem& p, PlanBuilder& builder) {
  if (p.plain) return lay_plain(p, builder);
  order_rows(p, builder);
  if (p.blocks != nullptr) return lay_blocks(p, builder);
  builder.kv_len.assign(static_cast<size_t>(p.num_requests), 0);
  builder.entries.clear();
  for (int l = 0; l < p.num_levels; ++l) lay_level(p, l, builder);
}

}  // namespace weft::planner
