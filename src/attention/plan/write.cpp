// What was built as bytes: units, items, merge groups, rows and page lists in the layout of attention/abi.h.
#include <algorithm>
#include <cstring>
#include <limits>

#include "attention/plan/plan_builder.h"
#include "base/check.h"

namespace weft::planner {
namespace {

using namespace attention;

void write_rows(const Problem& p, const PlanBuilder& builder, PlanRow* rows) {
  const bool has_positions = p.blocks != nullptr && !p.blocks->q_positions.empty();
  for (int place = 0; place < p.num_requests; ++place) {
    const int r = p.request_at(place), begin = p.qo_indptr[r], end = p.qo_indptr[r + 1];
    if (has_positions) {
      for (int q = begin; q < end; ++q) *rows++ = {q, r, q - begin, row_position(p, builder, r, q)};
      continue;
    }
    const int shift = builder.kv_len[r] - end;
    for (int q = begin; q < end; ++q) *rows++ = {q, r, q - begin, shift + q};
  }
}

// The lengths that leave the last chunk of a unit its keys: shorter ones must leave the last of several chunks a key.
void reach_end(const Problem& p, const Entry& entry, const PlannedItem& item, bool open, bool is_cut,
               Plan::Impl::Reach* reach) {
  const int least = entry.first_pos + (!open ? item.kv_end : item.kv_begin + static_cast<int>(is_cut));
  for (int place = entry.place_begin; place < entry.place_end; ++place) {
    const int r = p.request_at(place);
    if (p.qo_len(r) == 0) continue;  // no row of the entry is its own
    reach[r].min_kv_len = std::max(reach[r].min_kv_len, least);
  }
}

void write_items(const Problem& p, const PlanBuilder& builder, const Merges& merges, Plan::Impl& impl) {
  const PlanHeader& header = impl.header();
  char* base = impl.bytes.data();
  WorkItem* items = section<WorkItem>(base, header.items);
  std::copy(builder.worker_indptr.begin(), builder.worker_indptr.end(), section<int>(base, header.worker_indptr));
  const bool fixed = p.mode == PlanMode::fixed_split, joins = builder.joins_heads;
  const PlannedItem* const planned = builder.items.data();
  const PlannedUnit* const units = builder.units.data();
  const Tile* const tiles = builder.tiles.data();
  const Entry* const entries = builder.entries.data();
  const int* const first_partials = merges.first_partial.data();
  for (int w = 0; w < p.num_workers; ++w) {
    double load = 0;
    for (int i = builder.worker_indptr[w], end = builder.worker_indptr[w + 1]; i < end; ++i) {
      const PlannedItem& item = planned[i];
      const PlannedUnit& unit = units[item.unit];
      const Tile& tile = tiles[unit.tile];
      const bool last = item.chunk == unit.num_chunks - 1, open = last && tile.ends_open;
      const int first_partial = first_partials[item.unit];
      // A chunk's keys are walked from where it begins, wherever the first that some row sees lies: which rows share
      // the unit does not say where a tile of keys begins.
      const int begin = fixed ? item.kv_begin / p.fixed_split_size * p.fixed_split_size : item.kv_begin;
      items[i] = {item.unit, begin, open ? kOpenEnd : item.kv_end, first_partial < 0 ? -1 : first_partial + item.chunk};
      const double cost = item_cost(tile, item.kv_begin, item.kv_end);
      // A tile's costs are those of one unit; joined heads are several.
      load += joins ? (unit.head_end - unit.head_begin) / tile.unit_heads * cost : cost;
      if (last) reach_end(p, entries[tile.entry], item, open, unit.num_chunks > 1, impl.reach.data());
    }
    impl.makespan = std::max(impl.makespan, load);
  }
}

// For which lengths each request's units still hold every key that its rows see.
void write_reach(const Problem& p, const PlanBuilder& builder, std::vector<Plan::Impl::Reach>& reach) {
  bool lower_moves = false, upper_moves = p.num_intervals == 0;
  for (int i = 0; i < p.num_intervals; ++i) {
    const ResolvedInterval& interval = p.intervals[i];
    const auto moves = [](const BoundTerm& term) { return term.q_pos != 0 || term.kv_len != 0; };
    lower_moves = lower_moves || std::any_of(interval.lower, interval.lower + interval.num_lower, moves);
    upper_moves = upper_moves || interval.num_upper == 0 ||
                  std::any_of(interval.upper, interval.upper + interval.num_upper, moves);
  }
  for (Plan::Impl::Reach& limits : reach) limits.max_kv_len = std::numeric_limits<int32_t>::max();
  const bool open_ended = p.num_intervals == 0 && p.blocks == nullptr && p.mode != PlanMode::fixed_split;
  for (const Tile& tile : builder.tiles) {
    const VisibleRange& visible = tile.visible;
    if (open_ended && visible.begin < visible.end) continue;  // grows and shrinks with its requests
    const Entry& entry = builder.entries[tile.entry];
    // A longer KV moves upper bounds up: over a closed end they must not move.
    const bool closed = visible.end < entry.len || (!tile.ends_open && entry.level == p.num_levels - 1);
    const bool may_grow = !closed || !(upper_moves || visible.begin == visible.end);
    // A shorter one moves lower bounds down: the unit must begin at the first key already.
    const bool may_shrink = !lower_moves || (visible.begin == 0 && visible.end > 0);
    for (int place = entry.place_begin; place < entry.place_end; ++place) {
      const int r = p.request_at(place), kv_len = builder.kv_len[r];
      if (p.qo_len(r) == 0) continue;
      Plan::Impl::Reach& limits = reach[r];
      if (!may_grow) limits.max_kv_len = kv_len;
      if (!may_shrink) limits.min_kv_len = kv_len;
      if (p.mode != PlanMode::fixed_split) continue;
      // The chunks must stay those of a fresh plan.
      if (visible.begin > 0 || visible.gap_end > visible.gap_begin) limits = {kv_len, kv_len};
      const int64_t n = p.fixed_split_size, last_chunk = (std::max(kv_len, 1) - 1) / n * n;
      limits.min_kv_len = std::max(limits.min_kv_len, std::min(kv_len, static_cast<int>(last_chunk) + 1));
      limits.max_kv_len = static_cast<int>(std::min<int64_t>(limits.max_kv_len, last_chunk + n));
    }
  }
}

SectionCounts counts_of(const Problem& p, const PlanBuilder& builder, const Merges& merges) {
  SectionCounts counts;
  counts.worker_indptr = p.num_workers + 1;
  if (p.traits->item_records) {  // a worker without items has one, too
    const std::vector<int>& indptr = builder.worker_indptr;
    for (int w = 0; w < p.num_workers; ++w) counts.records += std::max(1, indptr[w + 1] - indptr[w]);
  }
  counts.items = static_cast<int64_t>(builder.items.size());
  counts.units = static_cast<int64_t>(builder.units.size());
  counts.rows = p.num_rows;
  counts.page_lists = static_cast<int64_t>(builder.entries.size());
  counts.requests = p.num_requests;
  counts.mask_indptr = static_cast<int64_t>(p.mask_indptr.size());
  counts.partials = merges.partials;
  counts.merge_groups = merges.groups;
  counts.merge_sources = merges.sources;
  counts.page_indices = p.num_page_ids + p.spare_pages;
  if (p.blocks != nullptr) {
    counts.kv_positions = static_cast<int64_t>(p.blocks->kv_positions.size());
    counts.bits_index = static_cast<int64_t>(p.blocks->bits_index.size());
    counts.bits = p.blocks->bits_index.empty() ? 0 : static_cast<int64_t>(p.blocks->bits.size());
  }
  counts.partial_floats = merges.floats;
  return counts;
}

void set_counts(const SectionCounts& counts, PlanHeader& header) {
  header.records.count = counts.records;
  header.worker_indptr.count = counts.worker_indptr;
  header.items.count = counts.items;
  header.units.count = counts.units;
  header.rows.count = counts.rows;
  header.page_lists.count = counts.page_lists;
  header.partials.count = counts.partials;
  header.merge_groups.count = header.counters.count = counts.merge_groups;
  header.merge_sources.count = counts.merge_sources;
  header.qo_len.count = header.kv_len.count = counts.requests;
  header.mask_indptr.count = counts.mask_indptr;
  header.page_indices.count = counts.page_indices;
  header.kv_positions.count = counts.kv_positions;
  header.bits_index.count = counts.bits_index;
  header.bits.count = counts.bits;
  header.partial_data.count = counts.partial_floats;
}

// Without offsets.
PlanHeader header_of(const Problem& p, const PlanBuilder& builder, const Merges& merges, const SectionCounts& counts) {
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
  header.num_levels = p.num_levels;
  header.tile_kinds = tile_kinds_of(p, builder);
  header.bounds = p.bounds != nullptr ? digest_of(*p.bounds) : 0;
  header.merge_stride = static_cast<int>(merges.heads.size());
  header.num_rows_q = p.num_rows;
  for (int i = 0; i < p.num_intervals; ++i) header.intervals[i] = p.intervals[i];
  std::memcpy(header.scalars, p.scalars, sizeof header.scalars);
  if (p.blocks != nullptr) {
    header.block_rows = p.blocks->block_rows;
    if (counts.kv_positions > 0) header.positions_per_page = static_cast<int>(counts.kv_positions / p.num_page_ids);
  }
  set_counts(counts, header);
  return header;
}

// The header in place, and zero counters. What lies between sections is zero, so that equal plans have equal bytes.
void start_bytes(const Problem& p, const PlanHeader& header, Plan::Impl& impl) {
  resize_bytes(p, header, impl);
  char* base = impl.bytes.data();
  std::memcpy(base, &header, sizeof header);
  int64_t end = sizeof header;
  for (const CopiedSection& copied : copied_sections()) {
    const Section& s = header.*copied.section;
    std::memset(base + end, 0, static_cast<size_t>(s.offset - end));
    end = s.offset + s.count * copied.element_bytes;
  }
  std::memset(section<int>(base, header.counters), 0, static_cast<size_t>(header.counters.count) * sizeof(int));
}

void write_blocks(const BlockSparse& blocks, const PlanHeader& header, char* base) {
  const auto copy = [&](const Section& s, const auto& from) {
    if (s.count > 0) std::memcpy(base + s.offset, from.data(), from.size_bytes());
  };
  copy(header.kv_positions, blocks.kv_positions);
  copy(header.bits_index, blocks.bits_index);
  copy(header.bits, blocks.bits);
}

}  // namespace

std::span<const CopiedSection> copied_sections() {
  static constexpr CopiedSection kSections[] = {
      {&PlanHeader::records, sizeof(ItemRecord)},
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
      {&PlanHeader::mask_indptr, sizeof(int64_t)},
      {&PlanHeader::kv_positions, sizeof(int)},
      {&PlanHeader::bits_index, sizeof(int)},
      {&PlanHeader::bits, 1},
      {&PlanHeader::counters, sizeof(int)},
      {&PlanHeader::page_indices, sizeof(int)},
  };
  return kSections;
}

void resize_bytes(const Problem& p, const PlanHeader& header, Plan::Impl& impl) {
  const int64_t ids = p.borrow_page_ids ? 0 : p.num_page_ids;  // they come last
  impl.bytes.resize(static_cast<size_t>(header.page_indices.offset + ids * static_cast<int64_t>(sizeof(int))));
}

void write_lengths(const Problem& p, const PlanBuilder& builder, Plan::Impl& impl) {
  char* base = impl.bytes.data();
  PlanHeader& header = *reinterpret_cast<PlanHeader*>(base);
  header.num_pool_pages = p.num_pool_pages;
  header.page_indices.count = p.num_page_ids;
  write_rows(p, builder, section<PlanRow>(base, header.rows));
  PageList* lists = section<PageList>(base, header.page_lists);
  const int open_level = p.blocks == nullptr ? p.num_levels - 1 : -1;
  for (const Entry& entry : builder.entries) {
    const int request = entry.place_begin < entry.place_end ? p.request_at(entry.place_begin) : 0;
    const int len = entry.level == open_level ? -1 : entry.len;
    *lists++ = {entry.first,   entry.first_pos,  len,           request, entry.level, entry.row_begin,
                entry.row_end, entry.head_begin, entry.head_end};
  }
  int* qo_len = section<int>(base, header.qo_len);
  for (int r = 0; r < p.num_requests; ++r) qo_len[r] = p.qo_len(r);
  std::copy(builder.kv_len.begin(), builder.kv_len.end(), section<int>(base, header.kv_len));
  std::copy(p.mask_indptr.begin(), p.mask_indptr.end(), section<int64_t>(base, header.mask_indptr));
  header.mask_bytes = mask_bytes(p.traits->custom_mask, p.mask_indptr);
  int* ids = section<int>(base, header.page_indices);
  impl.borrows_page_ids = p.borrow_page_ids;
  for (int l = 0; l < p.num_levels; ++l) {
    const std::span<const int32_t> own = p.levels[l].pages.kv_page_indices;
    impl.borrowed_page_ids[l] = p.borrow_page_ids ? own : std::span<const int32_t>();
    if (!p.borrow_page_ids && !own.empty()) std::memcpy(ids, own.data(), own.size_bytes());
    ids += own.size();
  }
  write_records(impl);
}

PlanHeader outline_header(const Problem& p, const PlanBuilder& builder) {
  SectionCounts counts;
  counts.units = static_cast<int64_t>(builder.units.size());
  PlanHeader header = header_of(p, builder, {}, counts);
  place_sections(counts, room_of(*p.traits, *p.bounds), header);
  header.num_pool_pages = p.num_pool_pages;
  return header;
}

void write_plan(const Problem& p, const PlanBuilder& builder, Plan::Impl& impl) {
  static thread_local Merges merges;
  lay_merges(p, builder, merges);
  const SectionCounts counts = counts_of(p, builder, merges);
  PlanHeader header = header_of(p, builder, merges, counts);
  const SectionCounts room = p.bounds != nullptr ? room_of(*p.traits, *p.bounds) : counts;
  place_sections(counts, room, header);
  impl.page_capacity = room.page_indices;
  impl.max_kv_len = static_cast<int>(p.bounds != nullptr ? p.bounds->max_kv_len : std::numeric_limits<int32_t>::max());
  impl.traits = *p.traits;
  impl.mode = p.mode;
  impl.lower_bound = builder.lower_bound;
  impl.reach.assign(static_cast<size_t>(p.num_requests), {});
  start_bytes(p, header, impl);
  write_merges(p, builder, merges, impl);
  write_items(p, builder, merges, impl);
  write_reach(p, builder, impl.reach);
  write_lengths(p, builder, impl);
  if (p.blocks != nullptr) write_blocks(*p.blocks, header, impl.bytes.data());
}

}  // namespace weft::planner
