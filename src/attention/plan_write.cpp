// A draft as bytes: units, items, merge groups, rows and page lists in the layout of kernels/abi.h.
#include <algorithm>
#include <cstring>
#include <limits>

#include "attention/plan_draft.h"
#include "base/check.h"

namespace weft::planner {
namespace {

using namespace attention;

struct Cuts {
  int64_t partials = 0, groups = 0, floats = 0;
};

Cuts count_cuts(const Problem& p, const Draft& draft) {
  Cuts cuts;
  for (const DraftUnit& unit : draft.units) {
    if (unit.parts < 2) continue;
    const Tile& tile = draft.tiles[unit.tile];
    cuts.partials += unit.parts;
    ++cuts.groups;
    cuts.floats +=
        unit.parts * partial_floats(tile.row_end - tile.row_begin, int64_t{unit.head_end - unit.head_begin} * p.group,
                                    p.traits->head_dim_vo);
  }
  check(cuts.partials <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument,
        "fixed_split_size = {}: {} partials; use larger chunks or fewer requests", p.fixed_split_size, cuts.partials);
  return cuts;
}

void write_rows(const Problem& p, const Draft& draft, PlanRow* rows) {
  for (int r = 0; r < p.num_requests; ++r) {
    const int begin = p.qo_indptr[r], end = p.qo_indptr[r + 1], first_pos = draft.kv_len[r] - (end - begin);
    for (int q = begin; q < end; ++q) rows[q] = {q, r, q - begin, first_pos + q - begin};
  }
}

// The last part of a unit stays open where the unit sees the request's last key.
bool ends_open(const Hull& hull, int kv_len) { return hull.end == kv_len && hull.begin < hull.end; }

void write_units(const Problem& p, const Draft& draft, Plan::Impl& impl, char* base, const PlanHeader& header) {
  Unit* units = section<Unit>(base, header.units);
  Partial* partials = section<Partial>(base, header.partials);
  MergeGroup* groups = section<MergeGroup>(base, header.merge_groups);
  MergeSource* sources = section<MergeSource>(base, header.merge_sources);
  int num_partials = 0, num_groups = 0;
  int64_t floats = 0;
  for (int u = 0; u < static_cast<int>(draft.units.size()); ++u) {
    const DraftUnit& unit = draft.units[u];
    const Tile& tile = draft.tiles[unit.tile];
    const bool cut = unit.parts > 1;
    units[u] = {tile.row_begin,  tile.row_end, unit.head_begin, unit.head_end, tile.request, 0,
                tile.tile_class, num_groups,   num_groups + cut};
    if (!cut) continue;
    groups[num_groups] = {tile.row_begin, tile.row_end, unit.head_begin,
                          unit.head_end,  num_partials, num_partials + unit.parts,
                          unit.parts,     num_groups};
    ++num_groups;
    const int64_t size = partial_floats(tile.row_end - tile.row_begin,
                                        int64_t{unit.head_end - unit.head_begin} * p.group, p.traits->head_dim_vo);
    for (int part = 0; part < unit.parts; ++part, ++num_partials, floats += size) {
      partials[num_partials] = {floats, u, 0};
      sources[num_partials] = {num_partials, 0};
    }
  }
  WorkItem* items = section<WorkItem>(base, header.items);
  int* worker_indptr = section<int>(base, header.worker_indptr);
  std::copy(draft.worker_indptr.begin(), draft.worker_indptr.end(), worker_indptr);
  for (int w = 0; w < p.num_workers; ++w) {
    double load = 0;
    for (int i = draft.worker_indptr[w]; i < draft.worker_indptr[w + 1]; ++i) {
      const DraftItem& item = draft.items[i];
      const DraftUnit& unit = draft.units[item.unit];
      const Tile& tile = draft.tiles[unit.tile];
      const Unit& written = units[item.unit];
      const bool open = item.kv_end == tile.hull.end && ends_open(tile.hull, draft.kv_len[tile.request]);
      const int partial = unit.parts > 1 ? groups[written.merge_begin].source_begin + item.part : -1;
      items[i] = {item.unit, item.kv_begin, open ? kOpenEnd : item.kv_end, partial};
      load += unit.parts == 1 ? unit.cost : item_cost(tile, unit, item.kv_begin, item.kv_end);
      // Shorter lengths must leave the last of several parts a key.
      if (item.part == unit.parts - 1) {
        Plan::Impl::Reach& reach = impl.reach[tile.request];
        const int least = open ? item.kv_begin + (unit.parts > 1 ? 1 : 0) : item.kv_end;
        reach.min_kv_len = std::max(reach.min_kv_len, least);
      }
    }
    impl.makespan = std::max(impl.makespan, load);
  }
}

// For which lengths each request's units still hold every key that its rows see.
void write_reach(const Problem& p, const Draft& draft, std::vector<Plan::Impl::Reach>& reach) {
  bool lower_moves = false, upper_moves = p.num_intervals == 0;
  for (int i = 0; i < p.num_intervals; ++i) {
    const ResolvedInterval& interval = p.intervals[i];
    const auto moves = [](const BoundTerm& term) { return term.q_pos != 0 || term.kv_len != 0; };
    lower_moves = lower_moves || std::any_of(interval.lower, interval.lower + interval.num_lower, moves);
    upper_moves = upper_moves || interval.num_upper == 0 ||
                  std::any_of(interval.upper, interval.upper + interval.num_upper, moves);
  }
  for (int r = 0; r < p.num_requests; ++r) {
    Plan::Impl::Reach& limits = reach[r];
    const int kv_len = draft.kv_len[r];
    limits.max_kv_len = std::numeric_limits<int32_t>::max();
    for (int t = draft.tile_indptr[r]; t < draft.tile_indptr[r + 1]; ++t) {
      const Hull& hull = draft.tiles[t].hull;
      // A longer KV moves upper bounds up: over a closed end they must not move.
      if (!ends_open(hull, kv_len) && (upper_moves || hull.begin == hull.end)) limits.max_kv_len = kv_len;
      // A shorter one moves lower bounds down: the unit must begin at the first key already.
      if (lower_moves && (hull.begin > 0 || hull.end == 0)) limits.min_kv_len = kv_len;
      if (p.mode != PlanMode::fixed_split) continue;
      // The chunks must stay those of a fresh plan.
      if (hull.begin > 0 || hull.gap_end > hull.gap_begin) limits = {kv_len, kv_len};
      const int64_t n = p.fixed_split_size, last_chunk = (std::max(kv_len, 1) - 1) / n * n;
      limits.min_kv_len = std::max(limits.min_kv_len, std::min(kv_len, static_cast<int>(last_chunk) + 1));
      limits.max_kv_len = static_cast<int>(std::min<int64_t>(limits.max_kv_len, last_chunk + n));
    }
  }
}

}  // namespace

std::span<const CopiedSection> copied_sections() {
  static constexpr CopiedSection kSections[] = {
      {&PlanHeader::worker_indptr, sizeof(int)},
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
  };
  return kSections;
}

void write_lengths(const Problem& p, const Draft& draft, Plan::Impl& impl) {
  char* base = impl.bytes.data();
  PlanHeader& header = *reinterpret_cast<PlanHeader*>(base);
  header.num_pool_pages = impl.placed.num_pool_pages = p.num_pool_pages;
  header.page_indices.count = impl.placed.page_indices.count = static_cast<int64_t>(p.pages.kv_page_indices.size());
  write_rows(p, draft, section<PlanRow>(base, header.rows));
  PageList* lists = section<PageList>(base, header.page_lists);
  int* qo_len = section<int>(base, header.qo_len);
  int* kv_len = section<int>(base, header.kv_len);
  for (int r = 0; r < p.num_requests; ++r) {
    int64_t first = r * p.max_kv_len;
    if (p.page_size > 0)
      first = p.pages.kv_page_indptr[r];
    else if (!p.kv_indptr.empty())
      first = p.kv_indptr[r];
    lists[r] = {first, 0, -1, r, 0};
    qo_len[r] = p.qo_len(r);
    kv_len[r] = draft.kv_len[r];
  }
  impl.borrowed_page_ids = {};
  if (p.borrow_page_ids)
    impl.borrowed_page_ids = p.pages.kv_page_indices;
  else if (!p.pages.kv_page_indices.empty())
    std::memcpy(section<int>(base, header.page_indices), p.pages.kv_page_indices.data(),
                p.pages.kv_page_indices.size_bytes());
}

void write_plan(const Problem& p, const Draft& draft, Plan::Impl& impl) {
  const Cuts cuts = count_cuts(p, draft);
  SectionCounts counts;
  counts.worker_indptr = p.num_workers + 1;
  counts.items = static_cast<int64_t>(draft.items.size());
  counts.units = static_cast<int64_t>(draft.units.size());
  counts.rows = p.num_rows;
  counts.page_lists = counts.requests = p.num_requests;
  counts.partials = counts.merge_sources = cuts.partials;
  counts.merge_groups = cuts.groups;
  counts.page_indices = static_cast<int64_t>(p.pages.kv_page_indices.size());
  counts.partial_floats = cuts.floats;

  PlanHeader header;
  std::memset(static_cast<void*>(&header), 0, sizeof header);
  header.magic = kPlanMagic;
  header.signature = p.traits->signature();
  header.num_workers = p.num_workers;
  header.num_requests = p.num_requests;
  header.num_qo_heads = p.num_qo_heads;
  header.num_kv_heads = p.num_kv_heads;
  header.head_dim_vo = p.traits->head_dim_vo;
  header.page_size = p.page_size;
  header.num_intervals = p.num_intervals;
  header.fixed_split_size = p.fixed_split_size;
  header.num_rows_q = p.num_rows;
  for (int i = 0; i < p.num_intervals; ++i) header.intervals[i] = p.intervals[i];
  header.worker_indptr.count = counts.worker_indptr;
  header.items.count = counts.items;
  header.units.count = counts.units;
  header.rows.count = counts.rows;
  header.page_lists.count = counts.page_lists;
  header.partials.count = counts.partials;
  header.merge_groups.count = header.counters.count = counts.merge_groups;
  header.merge_sources.count = counts.merge_sources;
  header.qo_len.count = header.kv_len.count = counts.requests;
  header.page_indices.count = counts.page_indices;
  header.partial_data.count = counts.partial_floats;
  impl.placed = header;
  place_sections(counts, header);
  const SectionCounts room = p.bounds != nullptr ? room_of(*p.traits, *p.bounds) : counts;
  place_sections(room, impl.placed);
  impl.page_capacity = room.page_indices;
  impl.max_kv_len = static_cast<int>(p.bounds != nullptr ? p.bounds->max_kv_len : std::numeric_limits<int32_t>::max());
  impl.traits = *p.traits;
  impl.mode = p.mode;
  impl.lower_bound = draft.lower_bound;
  impl.reach.assign(static_cast<size_t>(p.num_requests), {});

  const bool with_pages = !p.borrow_page_ids;
  impl.bytes.resize(static_cast<size_t>(with_pages ? header.counters.offset : header.page_indices.offset));
  char* base = impl.bytes.data();
  // What alignment leaves between sections is zero, so that equal plans have equal bytes.
  const char* const end = base + impl.bytes.size();
  std::memcpy(base, &header, sizeof header);
  const auto zero_up = [&](int64_t from) {
    char* gap = base + from;
    const int64_t aligned = ceil_div(from, 64) * 64;
    std::memset(gap, 0, static_cast<size_t>(std::min<int64_t>(aligned - from, end - gap)));
  };
  zero_up(sizeof header);
  for (const CopiedSection& copied : copied_sections()) {
    const Section& s = header.*copied.section;
    if (with_pages || copied.section != &PlanHeader::page_indices) zero_up(s.offset + s.count * copied.element_bytes);
  }
  write_units(p, draft, impl, base, header);
  write_reach(p, draft, impl.reach);
  write_lengths(p, draft, impl);
}

}  // namespace weft::planner
