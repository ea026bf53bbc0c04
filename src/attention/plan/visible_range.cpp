// Which keys the rows of a tile see, by intervals of positions.
#include <algorithm>
#include <limits>

#include "attention/plan/plan_builder.h"

namespace weft::planner {
namespace {

using attention::BoundTerm;

int64_t value(const BoundTerm& term, int pos, int kv_len) {
  return int64_t{term.constant} + (term.q_pos ? pos : 0) + (term.kv_len ? kv_len : 0);
}

int lower_of(const ResolvedInterval& interval, int pos, int kv_len) {
  int64_t bound = 0;
  for (int i = 0; i < interval.num_lower; ++i) bound = std::max(bound, value(interval.lower[i], pos, kv_len));
  return static_cast<int>(std::min<int64_t>(bound, kv_len));
}

int upper_of(const ResolvedInterval& interval, int pos, int kv_len) {
  int64_t bound = kv_len;
  for (int i = 0; i < interval.num_upper; ++i) bound = std::min(bound, value(interval.upper[i], pos, kv_len));
  return static_cast<int>(std::max<int64_t>(bound, 0));
}

}  // namespace

VisibleRange visible_range(std::span<const ResolvedInterval> intervals, int first_pos, int last_pos, int kv_len) {
  if (intervals.empty()) return {0, kv_len, 0, 0};
  // Bounds never fall as the position grows, so the first row has the lowest and the last row the highest.
  VisibleRange visible;
  for (const ResolvedInterval& interval : intervals) {
    const int begin = lower_of(interval, first_pos, kv_len), end = upper_of(interval, last_pos, kv_len);
    if (begin >= end) continue;
    if (visible.begin == visible.end) {
      visible = {begin, end, 0, 0};
      continue;
    }
    if (begin > visible.end) {
      visible.gap_begin = visible.end;
      visible.gap_end = begin;
    } else if (end < visible.begin) {
      visible.gap_begin = end;
      visible.gap_end = visible.begin;
    }
    visible.begin = std::min(visible.begin, begin);
    visible.end = std::max(visible.end, end);
  }
  return visible;
}

VisibleRange joined(const VisibleRange& a, const VisibleRange& b) {
  if (a.begin == a.end) return b;
  if (b.begin == b.end) return a;
  VisibleRange visible{std::min(a.begin, b.begin), std::max(a.end, b.end), 0, 0};
  // What one does not see on its left, in its gap and on its right, the other must not see either.
  const int hidden_a[3][2] = {{visible.begin, a.begin}, {a.gap_begin, a.gap_end}, {a.end, visible.end}};
  const int hidden_b[3][2] = {{visible.begin, b.begin}, {b.gap_begin, b.gap_end}, {b.end, visible.end}};
  for (const auto& [a_begin, a_end] : hidden_a)
    for (const auto& [b_begin, b_end] : hidden_b) {
      const int begin = std::max(a_begin, b_begin), end = std::min(a_end, b_end);
      if (end - begin > visible.gap_end - visible.gap_begin) visible.gap_begin = begin, visible.gap_end = end;
    }
  return visible;
}

VisibleRange within_list(const VisibleRange& visible, int first_pos, int len) {
  const auto inside = [&](int pos) { return std::clamp(pos - first_pos, 0, len); };
  VisibleRange local{inside(visible.begin), inside(visible.end), inside(visible.gap_begin), inside(visible.gap_end)};
  if (local.begin == local.end) return {};
  // A gap at an end is none.
  if (local.gap_begin == local.gap_end)
    local.gap_begin = local.gap_end = 0;
  else if (local.gap_begin <= local.begin)
    local = {local.gap_end, local.end, 0, 0};
  else if (local.gap_end >= local.end)
    local = {local.begin, local.gap_begin, 0, 0};
  return local.begin < local.end ? local : VisibleRange{};
}

VisibleRange visible_to_rows(const Problem& p, const PlanBuilder& builder, const Entry& entry, int row_begin,
                             int row_end) {
  const std::span<const ResolvedInterval> intervals(p.intervals, static_cast<size_t>(p.num_intervals));
  if (intervals.empty()) return {0, entry.len, 0, 0};
  if (p.plain) {
    const int kv_len = builder.kv_len[entry.place_begin], first_pos = kv_len - (entry.row_end - entry.row_begin);
    return visible_range(intervals, first_pos + row_begin - entry.row_begin, first_pos + row_end - 1 - entry.row_begin,
                         kv_len);
  }
  VisibleRange visible;
  if (p.blocks != nullptr) {
    if (!p.blocks->kv_positions.empty()) return {0, entry.len, 0, 0};
    int low = std::numeric_limits<int>::max(), high = -low;
    for (int row = row_begin; row < row_end; ++row) {
      low = std::min(low, row_position(p, builder, entry.place_begin, row));
      high = std::max(high, row_position(p, builder, entry.place_begin, row));
    }
    return within_list(visible_range(intervals, low, high, builder.kv_len[entry.place_begin]), 0, entry.len);
  }
  for (int place = entry.place_begin; place < entry.place_end; ++place) {
    const int request_begin = builder.row_indptr[place], request_end = builder.row_indptr[place + 1];
    const int begin = std::max(row_begin, request_begin), end = std::min(row_end, request_end);
    if (begin >= end) continue;
    const int kv_len = builder.kv_len[p.request_at(place)], shift = kv_len - request_end;
    visible = joined(visible, visible_range(intervals, begin + shift, end - 1 + shift, kv_len));
  }
  return within_list(visible, entry.first_pos, entry.len);
}

}  // namespace weft::planner
