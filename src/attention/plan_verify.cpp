// The planner's promises, checked on a finished plan row by row, without the planner's own notion of tiles and hulls.
#include <algorithm>
#include <vector>

#include "attention/traits.h"
#include "base/check.h"

namespace weft {
namespace {

using namespace attention;

struct View {
  const PlanHeader& header;
  std::span<const int> worker_indptr;
  std::span<const WorkItem> items;
  std::span<const Unit> units;
  std::span<const PlanRow> rows;
  std::span<const PageList> page_lists;
  std::span<const Partial> partials;
  std::span<const MergeGroup> groups;
  std::span<const MergeSource> sources;
  std::span<const int> qo_len, kv_len, page_indices;
};

template <class T>
std::span<const T> span_of(const Plan::Impl& impl, const Section& s) {
  return {section<const T>(impl.bytes.data(), s), static_cast<size_t>(s.count)};
}

View view_of(const Plan::Impl& impl) {
  const PlanHeader& h = impl.header();
  return {h,
          span_of<int>(impl, h.worker_indptr),
          span_of<WorkItem>(impl, h.items),
          span_of<Unit>(impl, h.units),
          span_of<PlanRow>(impl, h.rows),
          span_of<PageList>(impl, h.page_lists),
          span_of<Partial>(impl, h.partials),
          span_of<MergeGroup>(impl, h.merge_groups),
          span_of<MergeSource>(impl, h.merge_sources),
          span_of<int>(impl, h.qo_len),
          span_of<int>(impl, h.kv_len),
          impl.borrowed_page_ids.empty() ? span_of<int>(impl, h.page_indices) : impl.borrowed_page_ids};
}

bool within(int64_t begin, int64_t end, size_t size) {
  return begin >= 0 && begin <= end && end <= static_cast<int64_t>(size);
}

// Sections of the workspace do not overlap and end within it; the plan's own bytes hold what upload copies.
void verify_sections(const Plan::Impl& impl) {
  const PlanHeader& own = impl.header();
  ensure(own.magic == kPlanMagic && impl.placed.magic == kPlanMagic, "plan: no magic number");
  ensure(own.signature == impl.traits.signature(), "plan: another kernel's signature");
  struct Member {
    Section PlanHeader::*section;
    int64_t bytes;
  };
  constexpr Member kMembers[] = {{&PlanHeader::worker_indptr, sizeof(int)},
                                 {&PlanHeader::items, sizeof(WorkItem)},
                                 {&PlanHeader::units, sizeof(Unit)},
                                 {&PlanHeader::rows, sizeof(PlanRow)},
                                 {&PlanHeader::page_lists, sizeof(PageList)},
                                 {&PlanHeader::partials, sizeof(Partial)},
                                 {&PlanHeader::merge_groups, sizeof(MergeGroup)},
                                 {&PlanHeader::merge_sources, sizeof(MergeSource)},
                                 {&PlanHeader::qo_len, sizeof(int)},
                                 {&PlanHeader::kv_len, sizeof(int)},
                                 {&PlanHeader::page_indices, sizeof(int)},
                                 {&PlanHeader::counters, sizeof(int)},
                                 {&PlanHeader::partial_data, sizeof(float)}};
  int64_t own_end = sizeof(PlanHeader), placed_end = own_end;
  for (const Member& member : kMembers) {
    const Section &a = own.*member.section, &b = impl.placed.*member.section;
    ensure(a.count >= 0 && a.count == b.count, "section: {} and {} elements", a.count, b.count);
    ensure(a.offset % 64 == 0 && b.offset % 64 == 0, "section: at {} and {}, not on a cache line", a.offset, b.offset);
    ensure(a.offset >= own_end && b.offset >= placed_end, "section: at {} and {}, overlaps the one before", a.offset,
           b.offset);
    own_end = a.offset + a.count * member.bytes;
    placed_end = b.offset + b.count * member.bytes;
    const bool copied = member.section != &PlanHeader::counters && member.section != &PlanHeader::partial_data &&
                        !(member.section == &PlanHeader::page_indices && !impl.borrowed_page_ids.empty());
    ensure(!copied || own_end <= static_cast<int64_t>(impl.bytes.size()), "section: ends at {} of {} bytes", own_end,
           impl.bytes.size());
  }
  ensure(placed_end <= impl.placed.total_bytes, "sections end at {} of {} bytes", placed_end, impl.placed.total_bytes);
}

void verify_requests(const View& v) {
  const PlanHeader& h = v.header;
  ensure(v.qo_len.size() == v.kv_len.size() && v.kv_len.size() == static_cast<size_t>(h.num_requests),
         "lengths: not one for each request");
  ensure(v.rows.size() == static_cast<size_t>(h.num_rows_q), "rows: {} of {}", v.rows.size(), h.num_rows_q);
  std::vector<char> seen(v.rows.size(), 0);
  for (const PlanRow& row : v.rows) {
    ensure(row.q_row >= 0 && row.q_row < h.num_rows_q && !seen[row.q_row], "rows: q row {} twice or outside",
           row.q_row);
    seen[row.q_row] = 1;
    ensure(row.request >= 0 && row.request < h.num_requests, "rows: request {}", row.request);
    ensure(row.idx >= 0 && row.idx < v.qo_len[row.request], "rows: index {} of request {}", row.idx, row.request);
    ensure(row.pos == v.kv_len[row.request] - v.qo_len[row.request] + row.idx, "rows: q row {} at position {}",
           row.q_row, row.pos);
  }
  for (const PageList& list : v.page_lists) {
    ensure(list.request >= 0 && list.request < h.num_requests && list.first >= 0, "page list of request {}",
           list.request);
    const int64_t len = list.len < 0 ? v.kv_len[list.request] - list.first_pos : list.len;
    const int64_t last = h.page_size > 0 ? list.first + (len + h.page_size - 1) / h.page_size : list.first + len;
    ensure(len >= 0 && (h.page_size > 0 ? within(list.first, last, v.page_indices.size()) : last <= h.num_pool_pages),
           "page list of request {}: reaches beyond the cache", list.request);
  }
  for (const int page : v.page_indices) ensure(page >= 0 && page < h.num_pool_pages, "page id {}", page);
}

// The keys [begin, end) of one interval that a row at `pos` sees.
std::pair<int64_t, int64_t> seen_keys(const ResolvedInterval& interval, int pos, int kv_len) {
  int64_t begin = 0, end = kv_len;
  const auto at = [&](const BoundTerm& t) {
    return int64_t{t.constant} + t.q_pos * int64_t{pos} + t.kv_len * int64_t{kv_len};
  };
  for (int i = 0; i < interval.num_lower; ++i) begin = std::max(begin, at(interval.lower[i]));
  for (int i = 0; i < interval.num_upper; ++i) end = std::min(end, at(interval.upper[i]));
  return {begin, end};
}

void verify_units(const Plan::Impl& impl, const View& v, std::span<const int> items_of,
                  std::span<const int> first_item) {
  const PlanHeader& h = v.header;
  const int group = h.num_qo_heads / h.num_kv_heads;
  std::vector<char> written(v.rows.size() * static_cast<size_t>(h.num_kv_heads), 0);
  std::vector<char> partial_used(v.partials.size(), 0), group_used(v.groups.size(), 0);
  int64_t floats_end = 0;
  for (size_t u = 0; u < v.units.size(); ++u) {
    const Unit& unit = v.units[u];
    ensure(within(unit.row_begin, unit.row_end, v.rows.size()) && unit.row_begin < unit.row_end, "unit {}: rows", u);
    ensure(within(unit.kv_head_begin, unit.kv_head_end, static_cast<size_t>(h.num_kv_heads)) &&
               unit.kv_head_begin < unit.kv_head_end,
           "unit {}: KV heads", u);
    ensure(unit.tile_class >= 0 && unit.tile_class < static_cast<int>(impl.traits.classes.size()), "unit {}: class", u);
    const int fused = (unit.row_end - unit.row_begin) * group;
    ensure(fused <= std::max(group, impl.traits.classes[unit.tile_class].rows), "unit {}: {} fused rows in class {}", u,
           fused, unit.tile_class);
    ensure(unit.page_list >= 0 && unit.page_list < static_cast<int>(v.page_lists.size()), "unit {}: page list", u);
    ensure(unit.level == 0, "unit {}: level {}", u, unit.level);
    const int request = v.page_lists[unit.page_list].request;
    for (int row = unit.row_begin; row < unit.row_end; ++row) {
      ensure(v.rows[row].request == request, "unit {}: row of another request", u);
      for (int head = unit.kv_head_begin; head < unit.kv_head_end; ++head) {
        char& cell = written[static_cast<size_t>(row) * h.num_kv_heads + head];
        ensure(cell == 0, "unit {}: row {} KV head {} belongs to two units", u, row, head);
        cell = 1;
      }
    }
    // Its items follow each other without a gap or an overlap, borders on granules.
    const int first = first_item[u], n = first_item[u + 1] - first;
    ensure(n >= 1, "unit {}: no item", u);
    const int kv_len = v.kv_len[request];
    int end = v.items[items_of[first]].kv_begin;
    const int begin = end;
    for (int i = first; i < first + n; ++i) {
      const WorkItem& item = v.items[items_of[i]];
      ensure(item.kv_begin == end, "unit {}: an item begins at {} after {}", u, item.kv_begin, end);
      ensure(i == first || item.kv_begin % impl.traits.granule == 0, "unit {}: a border at {}", u, item.kv_begin);
      ensure(item.kv_end != kOpenEnd || i == first + n - 1, "unit {}: an open end before its last item", u);
      end = item.kv_end == kOpenEnd ? kv_len : item.kv_end;
      ensure(n > 1 ? item.kv_begin < end : item.kv_begin <= end, "unit {}: the item [{}, {})", u, item.kv_begin, end);
    }
    ensure(begin >= 0 && end <= kv_len, "unit {}: keys [{}, {}) of {}", u, begin, end, kv_len);
    // What a row sees lies inside.
    for (int row = unit.row_begin; row < unit.row_end; ++row) {
      if (h.num_intervals == 0) ensure(begin == 0 && end == kv_len, "unit {}: not all keys", u);
      for (int k = 0; k < h.num_intervals; ++k) {
        const auto [from, to] = seen_keys(h.intervals[k], v.rows[row].pos, kv_len);
        ensure(from >= to || (from >= begin && to <= end), "unit {}: row {} sees [{}, {}) outside of [{}, {})", u, row,
               from, to, begin, end);
      }
    }
    // Sole items write the output; the others' partials meet in one group that covers the unit.
    if (n == 1) {
      ensure(v.items[items_of[first]].partial == -1 && unit.merge_begin == unit.merge_end, "unit {}: writes no output",
             u);
      continue;
    }
    ensure(unit.merge_end == unit.merge_begin + 1 && within(unit.merge_begin, unit.merge_end, v.groups.size()),
           "unit {}: merge groups [{}, {})", u, unit.merge_begin, unit.merge_end);
    const MergeGroup& merge = v.groups[unit.merge_begin];
    ensure(!group_used[unit.merge_begin], "unit {}: shares its merge group", u);
    group_used[unit.merge_begin] = 1;
    ensure(merge.row_begin == unit.row_begin && merge.row_end == unit.row_end &&
               merge.kv_head_begin == unit.kv_head_begin && merge.kv_head_end == unit.kv_head_end,
           "unit {}: merge group of other rows or heads", u);
    ensure(within(merge.source_begin, merge.source_end, v.sources.size()) &&
               merge.source_end - merge.source_begin == n && merge.expected == n,
           "unit {}: {} items, {} merged, {} expected", u, n, merge.source_end - merge.source_begin, merge.expected);
    ensure(merge.counter >= 0 && merge.counter < h.counters.count, "unit {}: counter {}", u, merge.counter);
    for (int i = 0; i < n; ++i) {
      const MergeSource& source = v.sources[merge.source_begin + i];
      ensure(source.partial == v.items[items_of[first + i]].partial && source.row_offset == 0,
             "unit {}: partials are not merged in the order of keys", u);
      ensure(
          source.partial >= 0 && source.partial < static_cast<int>(v.partials.size()) && !partial_used[source.partial],
          "unit {}: partial {} twice or outside", u, source.partial);
      partial_used[source.partial] = 1;
      const Partial& partial = v.partials[source.partial];
      const int64_t floats = int64_t{fused} * (unit.kv_head_end - unit.kv_head_begin) * (h.head_dim_vo + 1);
      ensure(partial.unit == static_cast<int>(u) && partial.offset >= floats_end && partial.offset % 16 == 0,
             "partial {}: overlaps another one", source.partial);
      floats_end = partial.offset + floats;
      ensure(floats_end <= h.partial_data.count, "partial {}: ends at {} of {} floats", source.partial, floats_end,
             h.partial_data.count);
    }
  }
  ensure(std::count(written.begin(), written.end(), 0) == 0, "a row and KV head is in no unit");
  ensure(std::count(partial_used.begin(), partial_used.end(), 0) == 0, "a partial is merged nowhere");
  ensure(std::count(group_used.begin(), group_used.end(), 0) == 0, "a merge group has no unit");
  std::vector<char> counter_used(v.groups.size(), 0);
  for (const MergeGroup& merge : v.groups) {
    ensure(!counter_used[merge.counter], "counter {} is used twice", merge.counter);
    counter_used[merge.counter] = 1;
  }
}

}  // namespace

void verify(const Plan& plan) {
  const Plan::Impl& impl = plan.impl();
  verify_sections(impl);
  const View v = view_of(impl);
  ensure(v.worker_indptr.size() == static_cast<size_t>(v.header.num_workers) + 1 && v.worker_indptr.front() == 0 &&
             v.worker_indptr.back() == static_cast<int>(v.items.size()) &&
             std::is_sorted(v.worker_indptr.begin(), v.worker_indptr.end()),
         "worker_indptr: does not partition the items");
  verify_requests(v);
  // Items by unit, then by keys.
  std::vector<int> first_item(v.units.size() + 1, 0), items_of(v.items.size());
  for (const WorkItem& item : v.items) {
    ensure(item.unit >= 0 && item.unit < static_cast<int>(v.units.size()), "item of unit {}", item.unit);
    ++first_item[item.unit + 1];
  }
  for (size_t u = 0; u < v.units.size(); ++u) first_item[u + 1] += first_item[u];
  std::vector<int> next(first_item.begin(), first_item.end() - 1);
  for (size_t i = 0; i < v.items.size(); ++i) items_of[next[v.items[i].unit]++] = static_cast<int>(i);
  for (size_t u = 0; u < v.units.size(); ++u)
    std::sort(items_of.begin() + first_item[u], items_of.begin() + first_item[u + 1],
              [&](int a, int b) { return v.items[a].kv_begin < v.items[b].kv_begin; });
  verify_units(impl, v, items_of, first_item);
  if (impl.mode == PlanMode::balanced)
    for (int w = 0; w < v.header.num_workers; ++w) {
      int cut = 0;
      for (int i = v.worker_indptr[w]; i < v.worker_indptr[w + 1]; ++i) cut += v.items[i].partial >= 0;
      ensure(cut <= 2, "worker {} shares {} units with others", w, cut);
    }
}

}  // namespace weft
