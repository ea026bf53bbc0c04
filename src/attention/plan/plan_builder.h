// What the planner's stages hand to each other: checked input -> tiles -> units -> items -> bytes. Plain arrays that
// one thread reuses from plan to plan, so that a step allocates nothing but its Plan.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "attention/plan/planner.h"
#include "weft/block_sparse.h"

namespace weft::planner {

using attention::PlanHeader;
using attention::ResolvedInterval;

inline constexpr int kMaxWorkers = 65536;
inline constexpr int kMaxRows = 1 << 26;
inline constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
// Lengths stay clear of kOpenEnd and of int32 sums with constants of intervals.
inline constexpr int64_t kMaxKvLen = int64_t{1} << 30;

// Rows and pages of one level, as given; without pages for a ragged or padded cache.
struct LevelInput {
  std::span<const int32_t> qo_indptr;
  PageTableView pages;
  int64_t first_id = 0;    // where its page ids begin among those of all levels
  size_t first_entry = 0;  // where its lengths begin in PlanBuilder::entry_len
  size_t num_entries() const { return qo_indptr.size() - 1; }
};

// Input of a plan after every check.
struct Problem {
  const KernelTraits* traits = nullptr;
  int num_requests = 0;
  int num_qo_heads = 0, num_kv_heads = 0, group = 1;
  int num_workers = 0;  // 0: the default, until tiles are laid (workers_of)
  PlanMode mode = PlanMode::balanced;
  int fixed_split_size = 0;
  int page_size = 0;
  int64_t num_rows = 0;
  int64_t num_pool_pages = 0;  // pages of the pool, or rows of the token axis
  std::span<const int32_t> qo_indptr;
  std::span<const int32_t> request_order;  // empty: as they are
  LevelInput levels[kMaxLevels];
  int num_levels = 1;
  bool plain = true;  // one level, an entry a request, in the order of q
  const BlockSparse* blocks = nullptr;
  int64_t num_page_ids = 0;  // of all levels
  int64_t spare_pages = 0;
  std::span<const int32_t> kv_indptr;
  int64_t max_kv_len = 0;  // padded
  std::span<const int64_t> mask_indptr;
  const PlanBounds* bounds = nullptr;
  bool borrow_page_ids = false;
  int num_intervals = 0;
  ResolvedInterval intervals[attention::kMaxIntervals] = {};
  int scalars[attention::kMaxScalars] = {};  // that they name

  int qo_len(int request) const { return qo_indptr[request + 1] - qo_indptr[request]; }
  // The request at this place of the plan's order of rows.
  int request_at(int place) const { return request_order.empty() ? place : request_order[place]; }
};

// Rows that attend one page list: a request, requests that share an entry of a level, or a block of rows.
struct Entry {
  int level;
  int row_begin, row_end;      // in the plan's order of rows
  int place_begin, place_end;  // its requests, in the same order
  int head_begin, head_end;    // all KV heads, or one
  int first_pos, len;          // tokens
  int64_t first;               // as in PageList
};

// Keys that some row of a tile sees, counted from the first token of its page list: [begin, end) without
// [gap_begin, gap_end). Empty: begin == end.
struct VisibleRange {
  int begin = 0, end = 0;
  int gap_begin = 0, gap_end = 0;
  int num_keys() const { return end - begin - (gap_end - gap_begin); }
  // Visible keys in [from, to), which lies in [begin, end).
  int num_keys(int from, int to) const {
    const int lo = gap_begin > from ? gap_begin : from, hi = gap_end < to ? gap_end : to;
    return to - from - (hi > lo ? hi - lo : 0);
  }
};

// Division by the granule, a shift where it is a power of two.
class Granule {
 public:
  explicit Granule(int64_t size) : size_(static_cast<uint32_t>(size)) {
    if ((size_ & (size_ - 1)) == 0)
      while ((uint32_t{1} << shift_) < size_) ++shift_;
    else
      shift_ = -1;
  }
  int floor(int x) const {
    const auto u = static_cast<uint32_t>(x);
    return static_cast<int>(shift_ >= 0 ? u >> shift_ : u / size_);
  }
  int ceil(int x) const { return x == 0 ? 0 : floor(x - 1) + 1; }
  int size() const { return static_cast<int>(size_); }

 private:
  uint32_t size_;
  int shift_ = 0;
};

// A query tile of an entry, before its KV heads are dealt to units.
struct Tile {
  int entry, run;
  int tile_class;          // of the kernel's, by index
  int row_begin, row_end;  // in the plan's order of rows
  int heads, unit_heads;   // KV heads of its entry, and of each unit
  bool skipped;            // no row sees a key of this level, and each has a unit on another one
  bool ends_open;          // sees the request's last key: its units' last chunks stay open
  VisibleRange visible;
  // Of an item over the KV heads of one unit, and of a unit that is one item. Until units are laid: over one KV head.
  double overhead, per_token, cost;
};

struct PlannedUnit {
  int tile;
  int head_begin, head_end;
  int num_chunks;  // an item each
};

// A chunk of a unit; its worker is implied by PlanBuilder::worker_indptr once all items are dealt.
struct PlannedItem {
  int unit;
  int kv_begin, kv_end;
  int chunk;  // the how manieth of its unit, along the keys
};

// What the stages have built so far.
struct PlanBuilder {
  std::vector<int> kv_len;         // [requests]
  std::vector<int> row_indptr;     // [requests + 1], in the plan's order
  std::vector<Entry> entries;      // by level, rows
  std::vector<Tile> tiles;         // an entry's last tile first: the heaviest under a causal mask
  std::vector<int> tile_indptr;    // [runs + 1]; a run is the tiles of one class of an entry
  int tile_kinds = 0;              // bits of the kinds of these tiles
  std::vector<PlannedUnit> units;  // by run, KV heads, tile: neighbours share K and V
  bool joins_heads = false;  // units hold all KV heads of a tile until `balanced` cuts them (KernelTraits::walks_heads)
  std::vector<PlannedItem> items;  // by worker, in the order of execution
  std::vector<int> worker_indptr;  // [workers + 1]
  double lower_bound = 0, makespan = 0;

  // Scratch of the stages.
  std::vector<PlannedItem> pieces;
  std::vector<int> piece_worker, order;
  std::vector<double> piece_cost, load;
  std::vector<PlannedUnit> stretches;  // of KV heads that are one unit where a worker takes them whole
  std::vector<int> on_line;            // units, or stretches
  std::vector<int> line_count;         // units of each stretch
  std::vector<double> line_cost;       // of the first n of them together
  std::vector<int> entry_len;          // tokens of every level's entries; not of a plain plan
};

// Which partial states meet where. Units that share no row with another one merge their own chunks, if they have
// several. The others write partials always, and their rows and KV heads are cut into cells that no unit cuts.
struct Merges {
  enum Mark : char { kOutside, kInside, kBegins };
  struct Range {
    int begin, end;
  };
  std::vector<int> first_partial;  // [units] -1: written directly
  std::vector<int> partial_units;  // the others
  std::vector<char> shares_rows;   // [tiles]
  std::vector<Range> rows, heads;  // of cells: every range of rows with every range of KV heads
  std::vector<int> row_cell;       // [rows] index into rows, of those that are shared
  std::vector<int> head_cell;      // [KV heads] index into heads
  std::vector<Mark> row_marks, head_marks;
  int64_t partials = 0, groups = 0, sources = 0, floats = 0;
};

// ---------------------------------------------------------------- stages, in order

// This thread's: of one call at a time, which fills it anew. Its memory stays.
PlanBuilder& scratch();
// Throws Error(invalid_argument | invalid_indptr | invalid_page | unsupported) for a user's mistake.
Problem check_input(const KernelTraits& traits, const PlanInput& input, PlanBuilder& builder);

// Who attends which pages, and every request's length. Throws Error(invalid_argument | invalid_indptr) where levels
// do not fit together.
void lay_entries(const Problem& problem, PlanBuilder& builder);

// Where a custom mask's elements lie, of lengths that are laid: kernels follow it without looking. Throws
// Error(invalid_indptr | invalid_argument).
void check_mask(const Problem& problem, const PlanBuilder& builder);

// The block-sparse form of the two.
void check_blocks(Problem& problem, PlanBuilder& builder);
void lay_blocks(const Problem& problem, PlanBuilder& builder);

// Rows and visible ranges of every query tile.
void lay_tiles(const Problem& problem, PlanBuilder& builder);
// The caller's number, else as many as run at once where tiles are of these kinds (bits), within the bounds.
int workers_of(const Problem& problem, int tile_kinds);

// Units over all KV heads; the lower bound of the makespan.
void lay_units(const Problem& problem, PlanBuilder& builder);

// Items of every worker.
void cut_balanced(const Problem& problem, PlanBuilder& builder);
void cut_paper(const Problem& problem, PlanBuilder& builder);
void cut_fixed(const Problem& problem, PlanBuilder& builder);
void cut_none(const Problem& problem, PlanBuilder& builder);
// Throws Error(unsupported | invalid_argument) for a batch that it does not take.
void cut_even(const Problem& problem, PlanBuilder& builder);
void check_even(const Problem& problem, const PlanBuilder& builder);
// What an item of even costs beside its granules, in granules.
int even_overhead(const KernelTraits& traits, int tile_class, int rows);

// Partials, merge groups and their sources.
void lay_merges(const Problem& problem, const PlanBuilder& builder, Merges& merges);

// The plan's bytes, and again those that follow lengths: positions, page lists, page ids.
void write_plan(const Problem& problem, const PlanBuilder& builder, Plan::Impl& impl);
// The header of a plan with bounds before items are dealt.
PlanHeader outline_header(const Problem& problem, const PlanBuilder& builder);
void write_merges(const Problem& problem, const PlanBuilder& builder, const Merges& merges, Plan::Impl& impl);
void write_lengths(const Problem& problem, const PlanBuilder& builder, Plan::Impl& impl);
// Room for the bytes, page ids included where they are copied.
void resize_bytes(const Problem& problem, const PlanHeader& header, Plan::Impl& impl);
// Of each item, from what the other sections say; nothing where there is no section of records.
void write_records(Plan::Impl& impl);

// ---------------------------------------------------------------- used by several stages

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
// Bytes that a request's rows and keys take of a custom mask.
inline int64_t mask_part(Mask mask, int qo_len, int kv_len) {
  const int64_t elements = int64_t{qo_len} * kv_len;
  return mask == Mask::custom_packed ? ceil_div(elements, 8) : elements;
}
// Bytes that the mask has at least: bits are read in words of 4.
inline int64_t mask_bytes(Mask mask, std::span<const int64_t> mask_indptr) {
  const int64_t bytes = mask_indptr.empty() ? 0 : mask_indptr.back();
  return bytes > 0 && mask == Mask::custom_packed ? bytes + 4 : bytes;
}
// Positions that the rows of one request from first_pos to last_pos see.
VisibleRange visible_range(std::span<const ResolvedInterval> intervals, int first_pos, int last_pos, int kv_len);
// What either sees. Of several gaps the largest stays.
VisibleRange joined(const VisibleRange& a, const VisibleRange& b);
// Of a range of positions, what lies in a page list, counted from its first token.
VisibleRange within_list(const VisibleRange& visible, int first_pos, int len);
inline int row_position(const Problem& problem, const PlanBuilder& builder, int request, int q_row) {
  if (problem.blocks != nullptr && !problem.blocks->q_positions.empty()) return problem.blocks->q_positions[q_row];
  return builder.kv_len[request] - problem.qo_indptr[request + 1] + q_row;
}
// The keys of `entry` that its rows [row_begin, row_end) see.
VisibleRange visible_to_rows(const Problem& problem, const PlanBuilder& builder, const Entry& entry, int row_begin,
                             int row_end);
// What the units of an entry cost over one KV head. Leaves its tiles in the builder.
double entry_cost(const Problem& problem, PlanBuilder& builder, const Entry& entry);
// Fused rows of a kernel's largest tiles.
inline int most_rows(const KernelTraits& traits) {
  int most = 0;
  for (const TileClass& c : traits.classes) most = c.rows > most ? c.rows : most;
  return most;
}
// Query tokens of a tile of so many fused rows.
inline int tile_tokens(int rows, int group) { return rows >= group ? rows / group : 1; }
inline double item_cost(const Tile& tile, int kv_begin, int kv_end) {
  return tile.overhead + tile.per_token * tile.visible.num_keys(kv_begin, kv_end);
}

// Deals the units of entries with several tiles, or of all, whole: pieces, piece_worker and load. What is to be cut
// goes on_line.
void deal_tiles(const Problem& problem, PlanBuilder& builder);
// Deals the pieces (in builder.order's order) to the least loaded worker each, and gathers items by worker.
void deal_pieces(int num_workers, PlanBuilder& builder);
// items and worker_indptr from pieces and piece_worker, keeping the pieces' order within a worker.
void gather_items(int num_workers, PlanBuilder& builder);

// ---------------------------------------------------------------- sections

// Elements that each section of a workspace has room for.
struct SectionCounts {
  int64_t records = 0, worker_indptr = 0, items = 0, units = 0, rows = 0, page_lists = 0, partials = 0,
          merge_groups = 0, merge_sources = 0, requests = 0, mask_indptr = 0, page_indices = 0, kv_positions = 0,
          bits_index = 0, bits = 0, partial_floats = 0;
};
// Sets every section's offset, and total_bytes. What the planner writes lies together, or with a custom mask where it
// does however much of the room is used, as partial states do.
void place_sections(const SectionCounts& counts, const SectionCounts& room, PlanHeader& header);
// The most that a plan within the bounds needs. Throws Error(invalid_argument | unsupported) for senseless bounds.
SectionCounts room_of(const KernelTraits& traits, const PlanBounds& bounds);
uint64_t digest_of(const PlanBounds& bounds);
// PlanHeader::tile_kinds.
int tile_kinds_of(const Problem& problem, const PlanBuilder& builder);
// Kinds of the tiles that serve entries of up to so many query tokens.
std::vector<attention::TileKind> kinds_of_entries(const KernelTraits& traits, int group, int most_tokens);
// Throws Error(invalid_argument) naming what exceeds the bounds.
void check_within(const Problem& problem, const PlanBuilder& builder);
// The sections that upload copies, in the order in which they lie.
struct CopiedSection {
  attention::Section PlanHeader::*section;
  int64_t element_bytes;
};
std::span<const CopiedSection> copied_sections();

}  // namespace weft::planner
