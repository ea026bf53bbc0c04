// The planner's promises, checked on a finished plan row by row, without the planner's own notion of
// tiles and visible ranges.
#include <algorithm>
#include <tuple>
#include <vector>

#include "attention/plan/plan_builder.h"
#include "base/check.h"

namespace weft {
namespace {

using namespace attention;

struct View {
  const PlanHeader& header;
  std::span<const ItemRecord> records;
  std::span<const int> worker_indptr;
  std::span<const WorkItem> items;
  std::span<const Unit> units;
  std::span<const PlanRow> rows;
  std::span<const PageList> page_lists;
  std::span<const Partial> partials;
  std::span<const MergeGroup> groups;
  std::span<const MergeSource> sources;
  std::span<const int> qo_len, kv_len, page_indices;
  std::span<const int64_t> mask_indptr;

  // Tokens of a page list at the current lengths.
  int64_t length(const PageList& list) const {
    return list.len < 0 ? int64_t{kv_len[list.request]} - list.first_pos : list.len;
  }
};

template <class T>
std::span<const T> span_of(const Plan::Impl& impl, const Section& s) {
  return {section<const T>(impl.bytes.data(), s), static_cast<size_t>(s.count)};
}

// Borrowed page ids, level after level, come from the caller's arrays.
std::vector<int> page_ids_of(const Plan::Impl& impl) {
  const std::span<const int> own = span_of<int>(impl, impl.header().page_indices);
  if (!impl.borrows_page_ids) return {own.begin(), own.end()};
  std::vector<int> ids;
  for (const std::span<const int32_t> level : impl.borrowed_page_ids) ids.insert(ids.end(), level.begin(), level.end());
  return ids;
}

View view_of(const Plan::Impl& impl, std::span<const int> page_ids) {
  const PlanHeader& h = impl.header();
  return {h,
          span_of<ItemRecord>(impl, h.records),
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
          page_ids,
          span_of<int64_t>(impl, h.mask_indptr)};
}

bool within(int64_t begin, int64_t end, size_t size) {
  return begin >= 0 && begin <= end && end <= static_cast<int64_t>(size);
}

// Sections do not overlap and end within the workspace; the plan's own bytes hold what upload copies.
void verify_sections(const Plan::Impl& impl) {
  const PlanHeader& h = impl.header();
  ensure(h.magic == kPlanMagic, "plan: no magic number");
  ensure(h.signature == impl.traits.signature(), "plan: another kernel's signature");
  int64_t end = sizeof(PlanHeader);
  const auto add = [&](const Section& s, int64_t element_bytes) {
    ensure(s.count >= 0 && s.offset % 64 == 0 && s.offset >= end, "section: {} elements at {}, behind {}", s.count,
           s.offset, end);
    end = s.offset + s.count * element_bytes;
  };
  for (const planner::CopiedSection& copied : planner::copied_sections()) {
    add(h.*copied.section, copied.element_bytes);
    const bool borrowed = copied.section == &PlanHeader::page_indices && impl.borrows_page_ids;
    ensure(borrowed || end <= static_cast<int64_t>(impl.bytes.size()), "section: ends at {} of {} bytes", end,
           impl.bytes.size());
  }
  add(h.partial_data, sizeof(float));
  ensure(end <= h.total_bytes, "sections end at {} of {} bytes", end, h.total_bytes);
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
    ensure(h.block_rows > 0 || row.pos == v.kv_len[row.request] - v.qo_len[row.request] + row.idx,
           "rows: q row {} at position {}", row.q_row, row.pos);
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

// Each row's lists, level after level, hold its request's keys once; block-sparse, one list holds what it likes.
// Each request's elements lie within the mask.
void verify_mask(const View& v, Mask mask) {
  const size_t entries = mask == Mask::none ? 0 : v.qo_len.size() + 1;
  ensure(v.mask_indptr.size() == entries && v.header.mask_bytes == planner::mask_bytes(mask, v.mask_indptr),
         "mask_indptr: has {} entries, and a mask of {} bytes", v.mask_indptr.size(), v.header.mask_bytes);
  for (size_t r = 0; r + 1 < entries; ++r) {
    const int64_t begin = v.mask_indptr[r], end = v.mask_indptr[r + 1];
    ensure(begin >= 0 && begin <= end && planner::mask_part(mask, v.qo_len[r], v.kv_len[r]) <= end - begin,
           "mask_indptr: request {} has {} to {}", r, begin, end);
  }
}

void verify_lists(const View& v) {
  const PlanHeader& h = v.header;
  const auto heads = static_cast<size_t>(h.num_kv_heads);
  std::vector<int64_t> reached(v.rows.size() * heads, 0);
  int level = 0;
  for (const PageList& list : v.page_lists) {
    ensure(list.request >= 0 && list.request < h.num_requests && list.first >= 0, "page list of request {}",
           list.request);
    ensure(list.level >= level && list.level < h.num_levels, "page list: level {} after {}", list.level, level);
    ensure(within(list.row_begin, list.row_end, v.rows.size()), "page list: rows [{}, {})", list.row_begin,
           list.row_end);
    ensure(within(list.kv_head_begin, list.kv_head_end, heads), "page list: KV heads [{}, {})", list.kv_head_begin,
           list.kv_head_end);
    level = list.level;
    const int64_t len = v.length(list);
    const int64_t last = h.page_size > 0 ? list.first + (len + h.page_size - 1) / h.page_size : list.first + len;
    ensure(len >= 0 && (h.page_size > 0 ? within(list.first, last, v.page_indices.size()) : last <= h.num_pool_pages),
           "page list of request {}: reaches beyond the cache", list.request);
    for (int row = list.row_begin; row < list.row_end; ++row)
      for (int head = list.kv_head_begin; head < list.kv_head_end; ++head) {
        int64_t& at = reached[static_cast<size_t>(row) * heads + static_cast<size_t>(head)];
        ensure(len == 0 || list.first_pos == at, "page list of request {}: begins at {}, its row {} at {}",
               list.request, list.first_pos, row, at);
        at += len;
      }
  }
  if (h.block_rows > 0) return;
  for (size_t i = 0; i < reached.size(); ++i)
    ensure(reached[i] == v.kv_len[v.rows[i / heads].request], "row {}: its page lists end at {} of {} keys", i / heads,
           reached[i], v.kv_len[v.rows[i / heads].request]);
}

// Units, their items and where their partials go.
class Units {
 public:
  Units(const Plan::Impl& impl, const View& v) : impl_(impl), v_(v), h_(v.header) {
    // Items by unit, then by keys.
    first_item_.assign(v.units.size() + 1, 0);
    items_of_.resize(v.items.size());
    for (const WorkItem& item : v.items) {
      ensure(item.unit >= 0 && item.unit < static_cast<int>(v.units.size()), "item of unit {}", item.unit);
      ++first_item_[item.unit + 1];
    }
    for (size_t u = 0; u < v.units.size(); ++u) first_item_[u + 1] += first_item_[u];
    std::vector<int> next(first_item_.begin(), first_item_.end() - 1);
    for (size_t i = 0; i < v.items.size(); ++i) items_of_[next[v.items[i].unit]++] = static_cast<int>(i);
    for (size_t u = 0; u < v.units.size(); ++u)
      std::sort(items_of_.begin() + first_item_[u], items_of_.begin() + first_item_[u + 1],
                [&](int a, int b) { return v.items[a].kv_begin < v.items[b].kv_begin; });
  }

  void verify() {
    unit_of_.assign(v_.rows.size() * num_heads() * static_cast<size_t>(h_.num_levels), -1);
    num_units_.assign(v_.rows.size() * num_heads(), 0);
    for (int u = 0; u < static_cast<int>(v_.units.size()); ++u) {
      place(u);
      verify_items(u);
    }
    verify_seen();
    item_of_.assign(v_.partials.size(), -1);
    arrivals_.assign(v_.groups.size(), 0);
    int64_t floats_end = 0;
    for (int u = 0; u < static_cast<int>(v_.units.size()); ++u) floats_end = verify_partials(u, floats_end);
    ensure(std::count(item_of_.begin(), item_of_.end(), -1) == 0, "a partial is written by no item");
    for (int g = 0; g < static_cast<int>(v_.groups.size()); ++g) verify_group(g);
    std::vector<char> counter_used(v_.groups.size(), 0);
    for (const MergeGroup& merge : v_.groups) {
      ensure(merge.counter >= 0 && merge.counter < h_.counters.count && !counter_used[merge.counter],
             "counter {} is used twice or outside", merge.counter);
      counter_used[merge.counter] = 1;
    }
  }

  int num_items(int unit) const { return first_item_[unit + 1] - first_item_[unit]; }

 private:
  size_t num_heads() const { return static_cast<size_t>(h_.num_kv_heads); }
  int fused_rows(const Unit& unit) const {
    return (unit.row_end - unit.row_begin) * (h_.num_qo_heads / h_.num_kv_heads);
  }
  const PageList& list_of(const Unit& unit) const { return v_.page_lists[unit.page_list]; }
  const WorkItem& item(int unit, int chunk) const { return v_.items[items_of_[first_item_[unit] + chunk]]; }

  // One unit a row, KV head and level, within its page list's rows.
  void place(int u) {
    const Unit& unit = v_.units[u];
    ensure(unit.page_list >= 0 && unit.page_list < static_cast<int>(v_.page_lists.size()), "unit {}: page list", u);
    const PageList& list = list_of(unit);
    ensure(unit.row_begin < unit.row_end && unit.row_begin >= list.row_begin && unit.row_end <= list.row_end,
           "unit {}: rows outside of its page list's", u);
    ensure(unit.kv_head_begin < unit.kv_head_end && unit.kv_head_begin >= list.kv_head_begin &&
               unit.kv_head_end <= list.kv_head_end,
           "unit {}: KV heads outside of its page list's", u);
    const TileClass* tile_class = impl_.traits.find_class(unit.tile_kind);
    ensure(tile_class != nullptr, "unit {}: the kernel has no {} tile class", u, to_string(unit.tile_kind));
    const int group = h_.num_qo_heads / h_.num_kv_heads;
    ensure(fused_rows(unit) <= std::max(group, tile_class->rows), "unit {}: {} fused rows in a {} tile of {}", u,
           fused_rows(unit), to_string(unit.tile_kind), tile_class->rows);
    for (int row = unit.row_begin; row < unit.row_end; ++row)
      for (int head = unit.kv_head_begin; head < unit.kv_head_end; ++head) {
        const size_t cell = static_cast<size_t>(row) * num_heads() + static_cast<size_t>(head);
        int& owner = unit_of_[cell * static_cast<size_t>(h_.num_levels) + static_cast<size_t>(list.level)];
        ensure(owner == -1, "unit {}: row {} KV head {} belongs to two units of level {}", u, row, head, list.level);
        owner = u;
        ++num_units_[cell];
      }
  }

  // Its items follow each other without a gap or an overlap, borders on granules.
  void verify_items(int u) const {
    const PageList& list = list_of(v_.units[u]);
    const int n = num_items(u), len = static_cast<int>(v_.length(list));
    ensure(n >= 1, "unit {}: no item", u);
    int end = item(u, 0).kv_begin;
    ensure(end >= 0, "unit {}: begins at {}", u, end);
    for (int i = 0; i < n; ++i) {
      const WorkItem& at = item(u, i);
      ensure(at.kv_begin == end, "unit {}: an item begins at {} after {}", u, at.kv_begin, end);
      ensure(i == 0 || at.kv_begin % impl_.traits.granule == 0, "unit {}: a border at {}", u, at.kv_begin);
      ensure(at.kv_end != kOpenEnd || (i == n - 1 && list.len < 0), "unit {}: an open end before its last key", u);
      end = at.kv_end == kOpenEnd ? len : at.kv_end;
      ensure(n > 1 ? at.kv_begin < end : at.kv_begin <= end, "unit {}: the item [{}, {})", u, at.kv_begin, end);
    }
    ensure(end <= len, "unit {}: ends at {} of {} keys", u, end, len);
  }

  // Every key that a row sees lies in its unit of the key's level, and every row has a unit.
  void verify_seen() const {
    ensure(std::count(num_units_.begin(), num_units_.end(), 0) == 0, "a row and KV head is in no unit");
    for (const PageList& list : v_.page_lists)
      for (int row = list.row_begin; row < list.row_end; ++row)
        for (int head = list.kv_head_begin; head < list.kv_head_end; ++head) {
          const size_t cell = static_cast<size_t>(row) * num_heads() + static_cast<size_t>(head);
          verify_row(list, row, unit_of_[cell * static_cast<size_t>(h_.num_levels) + static_cast<size_t>(list.level)]);
        }
  }
  void verify_row(const PageList& list, int row, int u) const {
    const PlanRow& at = v_.rows[row];
    int64_t begin = 0, end = 0;  // what the unit holds, in positions
    if (u >= 0) {
      const WorkItem& last = item(u, num_items(u) - 1);
      begin = list.first_pos + item(u, 0).kv_begin;
      end = list.first_pos + std::min<int64_t>(last.kv_end, v_.length(list));
    }
    const auto holds = [&](int64_t from, int64_t to) {
      from = std::max<int64_t>(from, list.first_pos);
      to = std::min(to, list.first_pos + v_.length(list));
      ensure(from >= to || (from >= begin && to <= end), "unit {}: row {} sees [{}, {}) outside of [{}, {})", u, row,
             from, to, begin, end);
    };
    if (h_.num_intervals == 0 || h_.positions_per_page > 0) holds(0, v_.kv_len[at.request]);
    if (h_.positions_per_page > 0) return;
    for (int k = 0; k < h_.num_intervals; ++k) {
      const auto [from, to] = seen_keys(h_.intervals[k], at.pos, v_.kv_len[at.request]);
      holds(from, to);
    }
  }

  // The sole item of its rows writes the output; every other one has a partial of its own, and counts in the merge
  // groups that make up its unit.
  int64_t verify_partials(int u, int64_t floats_end) {
    const Unit& unit = v_.units[u];
    bool sole = num_items(u) == 1;
    for (int row = unit.row_begin; row < unit.row_end; ++row)
      for (int head = unit.kv_head_begin; head < unit.kv_head_end; ++head)
        sole = sole && num_units_[static_cast<size_t>(row) * num_heads() + static_cast<size_t>(head)] == 1;
    if (sole) {
      ensure(item(u, 0).partial == -1 && unit.merge_rows == 0 && unit.merge_heads == 0, "unit {}: writes no output", u);
      return floats_end;
    }
    for (int i = 0; i < num_items(u); ++i) {
      const int index = item(u, i).partial;
      ensure(index >= 0 && index < static_cast<int>(v_.partials.size()) && item_of_[index] == -1,
             "unit {}: partial {} twice or outside", u, index);
      item_of_[index] = items_of_[first_item_[u] + i];
      const Partial& partial = v_.partials[index];
      ensure(partial.unit == u && partial.offset >= floats_end && partial.offset % 16 == 0,
             "partial {}: overlaps another one", index);
      floats_end = partial.offset + int64_t{fused_rows(unit)} * (unit.kv_head_end - unit.kv_head_begin) *
                                        floats_of_state(h_.head_dim_vo);
      ensure(floats_end <= h_.partial_data.count, "partial {}: ends at {} of {} floats", index, floats_end,
             h_.partial_data.count);
    }
    int64_t covered = 0;
    for (int r = 0; r < unit.merge_rows; ++r)
      for (int k = 0; k < unit.merge_heads; ++k) {
        const int64_t g = unit.merge_begin + int64_t{r} * h_.merge_stride + k;
        ensure(g >= 0 && g < h_.merge_groups.count, "unit {}: merge group {}", u, g);
        const MergeGroup& merge = v_.groups[static_cast<size_t>(g)];
        ensure(merge.row_begin >= unit.row_begin && merge.row_end <= unit.row_end &&
                   merge.kv_head_begin >= unit.kv_head_begin && merge.kv_head_end <= unit.kv_head_end,
               "unit {}: merge group of other rows or heads", u);
        covered += int64_t{merge.row_end - merge.row_begin} * (merge.kv_head_end - merge.kv_head_begin);
        arrivals_[static_cast<size_t>(g)] += num_items(u);
      }
    ensure(covered == int64_t{unit.row_end - unit.row_begin} * (unit.kv_head_end - unit.kv_head_begin),
           "unit {}: its merge groups do not cover it", u);
    return floats_end;
  }

  // A group sums the partials of every unit of its rows, by level, then along the keys.
  void verify_group(int g) const {
    const MergeGroup& merge = v_.groups[g];
    ensure(merge.row_begin < merge.row_end && merge.kv_head_begin < merge.kv_head_end, "merge group {}: is empty", g);
    const int n = merge.source_end - merge.source_begin;
    ensure(within(merge.source_begin, merge.source_end, v_.sources.size()) && n == merge.expected &&
               n == arrivals_[g] && n > 0,
           "merge group {}: {} partials, {} expected, {} arrive", g, n, merge.expected, arrivals_[g]);
    std::pair<int, int> before{-1, -1};
    for (int s = merge.source_begin; s < merge.source_end; ++s) {
      const MergeSource& source = v_.sources[s];
      ensure(source.partial >= 0 && source.partial < static_cast<int>(v_.partials.size()), "merge group {}: partial {}",
             g, source.partial);
      const WorkItem& from = v_.items[item_of_[source.partial]];
      const Unit& unit = v_.units[from.unit];
      ensure(merge.row_begin >= unit.row_begin && merge.row_end <= unit.row_end &&
                 merge.kv_head_begin >= unit.kv_head_begin && merge.kv_head_end <= unit.kv_head_end &&
                 source.row_offset == merge.row_begin - unit.row_begin,
             "merge group {}: partial {} is of other rows", g, source.partial);
      const std::pair<int, int> now{list_of(unit).level, from.kv_begin};
      ensure(before < now, "merge group {}: partials are not merged in the order of keys", g);
      before = now;
    }
  }

  const Plan::Impl& impl_;
  const View& v_;
  const PlanHeader& h_;
  std::vector<int> first_item_, items_of_;  // items by unit, along the keys
  std::vector<int> unit_of_;                // [rows][KV heads][levels]
  std::vector<int> num_units_;              // [rows][KV heads]
  std::vector<int> item_of_;                // [partials]
  std::vector<int> arrivals_;               // [merge groups]
};

void verify_record(const View& v, const WorkItem& item, const ItemRecord& record) {
  const Unit& unit = v.units[item.unit];
  const PageList& list = v.page_lists[unit.page_list];
  const auto of_unit = [](const auto& x) {
    return std::tuple(x.row_begin, x.kv_head_begin, x.kv_head_end, x.tile_kind, x.merge_begin, x.merge_rows,
                      x.merge_heads);
  };
  ensure(of_unit(record) == of_unit(unit) && record.num_rows == unit.row_end - unit.row_begin &&
             record.block_row == unit.row_begin - list.row_begin,
         "a record is of other rows or heads than its unit {}", item.unit);
  ensure(record.kv_begin == item.kv_begin && record.kv_end == item.kv_end && record.first == list.first &&
             record.first_pos == list.first_pos && record.request == list.request,
         "a record is of other keys than its item of unit {}", item.unit);
  ensure(v.header.page_size == 0 || int64_t{record.num_page_ids} * v.header.page_size >= v.length(list),
         "a record of unit {} names {} page ids", item.unit, record.num_page_ids);
  for (int i = 0; i < record.num_rows && record.q_row >= 0; ++i) {
    const PlanRow& row = v.rows[unit.row_begin + i];
    ensure(row.q_row == record.q_row + i && row.request == record.request && row.idx == record.idx + i &&
               record.qo_len == v.qo_len[row.request] && row.pos == v.kv_len[row.request] - record.qo_len + row.idx,
           "a record of unit {} says that its rows lie together", item.unit);
  }
  ensure(record.partial == (item.partial < 0 ? -1 : v.partials[item.partial].offset), "a record has another partial");
  if (item.partial < 0 || v.header.num_levels > 1) return;
  const MergeGroup& group = v.groups[unit.merge_begin];
  ensure(record.num_chunks == group.expected && group.counter == unit.merge_begin, "a record counts {} chunks of {}",
         record.num_chunks, group.expected);
  const int64_t floats = partial_floats(int64_t{record.num_rows} * (unit.kv_head_end - unit.kv_head_begin) *
                                            (v.header.num_qo_heads / v.header.num_kv_heads),
                                        v.header.head_dim_vo);
  for (int s = 0; s < record.num_chunks; ++s)
    ensure(v.partials[v.sources[group.source_begin + s].partial].offset == record.partial + (s - record.chunk) * floats,
           "chunk {} of unit {} lies elsewhere than its record says", s, item.unit);
}

// Each worker's records, from its own on, say what the sections say of its items.
void verify_records(const View& v) {
  if (v.records.empty()) return;
  const PlanHeader& h = v.header;
  ensure(h.records.offset == kRecordsOffset, "records: at {}", h.records.offset);
  std::vector<char> seen(v.records.size(), 0);
  for (int w = 0; w < h.num_workers; ++w) {
    int at = w;
    for (int i = v.worker_indptr[w]; i < v.worker_indptr[w + 1]; ++i) {
      ensure(at >= 0 && at < static_cast<int>(v.records.size()) && !seen[at], "item {}: record {}", i, at);
      seen[at] = 1;
      verify_record(v, v.items[i], v.records[at]);
      at = v.records[at].next;
    }
    const bool none = v.worker_indptr[w] == v.worker_indptr[w + 1];
    if (none) ensure(v.records[w].num_rows == 0, "worker {}: a record and no item", w);
    ensure((none ? v.records[w].next : at) == -1, "worker {}: more records than items", w);
  }
}

}  // namespace

void verify(const Plan& plan) {
  const Plan::Impl& impl = plan.impl();
  verify_sections(impl);
  const std::vector<int> page_ids = page_ids_of(impl);
  const View v = view_of(impl, page_ids);
  ensure(v.worker_indptr.size() == static_cast<size_t>(v.header.num_workers) + 1 && v.worker_indptr.front() == 0 &&
             v.worker_indptr.back() == static_cast<int>(v.items.size()) &&
             std::is_sorted(v.worker_indptr.begin(), v.worker_indptr.end()),
         "worker_indptr: does not partition the items");
  verify_requests(v);
  verify_mask(v, impl.traits.custom_mask);
  verify_lists(v);
  Units units(impl, v);
  units.verify();
  verify_records(v);
  if (impl.mode == PlanMode::balanced)
    for (int w = 0; w < v.header.num_workers; ++w) {
      int cut = 0;
      for (int i = v.worker_indptr[w]; i < v.worker_indptr[w + 1]; ++i) cut += units.num_items(v.items[i].unit) > 1;
      ensure(cut <= 2, "worker {} shares {} units with others", w, cut);
    }
}

}  // namespace weft
