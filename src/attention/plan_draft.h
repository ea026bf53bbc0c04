// What the planner's stages hand to each other: checked input -> tiles -> units -> items -> bytes. Plain arrays that
// one thread reuses from plan to plan, so that a step allocates nothing but its Plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/traits.h"

namespace weft::planner {

using attention::PlanHeader;
using attention::ResolvedInterval;

inline constexpr int kMaxWorkers = 65536;

// Input of a plan after every check.
struct Problem {
  const KernelTraits* traits = nullptr;
  int num_requests = 0;
  int num_qo_heads = 0, num_kv_heads = 0, group = 1;
  int num_workers = 1;
  PlanMode mode = PlanMode::balanced;
  int fixed_split_size = 0;
  int page_size = 0;
  int64_t num_rows = 0;
  int64_t num_pool_pages = 0;  // pages of the pool, or rows of the token axis
  std::span<const int32_t> qo_indptr;
  PageTableView pages;
  std::span<const int32_t> kv_indptr;
  int64_t max_kv_len = 0;  // padded
  const PlanBounds* bounds = nullptr;
  bool borrow_page_ids = false;
  int num_intervals = 0;
  ResolvedInterval intervals[2] = {};

  int qo_len(int request) const { return qo_indptr[request + 1] - qo_indptr[request]; }
};

// Keys that some row of a tile sees: [begin, end) without [gap_begin, gap_end). Empty: begin == end.
struct Hull {
  int begin = 0, end = 0;
  int gap_begin = 0, gap_end = 0;
  int visible() const { return end - begin - (gap_end - gap_begin); }
  // Visible keys in [from, to), which lies in [begin, end).
  int visible(int from, int to) const {
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

// A query tile of a request, before its KV heads are dealt to units.
struct Tile {
  int request, tile_class;
  int row_begin, row_end;  // query tokens
  Hull hull;
  double overhead, per_token;  // of an item over one KV head
};

struct DraftUnit {
  int tile;
  int head_begin, head_end;
  int parts;                         // items that it was cut into
  double overhead, per_token, cost;  // of the unit; cost is that of the unit in one item
};

// A part of a unit; its worker is implied by Draft::worker_indptr once the draft is complete.
struct DraftItem {
  int unit;
  int kv_begin, kv_end;
  int part;  // the how manieth of its unit, along the keys
};

struct Draft {
  std::vector<int> kv_len;         // [requests]
  std::vector<Tile> tiles;         // a request's last tile first: the heaviest under a causal mask
  std::vector<int> tile_indptr;    // [requests + 1]
  std::vector<DraftUnit> units;    // by request, KV heads, tile: neighbours share K and V
  std::vector<DraftItem> items;    // by worker, in the order of execution
  std::vector<int> worker_indptr;  // [workers + 1]
  double lower_bound = 0, makespan = 0;

  // Scratch of the stages.
  std::vector<DraftItem> pieces;
  std::vector<int> piece_worker, order;
  std::vector<double> piece_cost, load;
  std::vector<int> on_line;       // units
  std::vector<double> line_cost;  // theirs
};

// ---------------------------------------------------------------- stages, in order

// Throws Error(invalid_argument | invalid_indptr | invalid_page | unsupported) for a user's mistake.
Problem check_input(const KernelTraits& traits, const PlanInput& input, Draft& draft);

// Rows and hulls of every query tile; units over all KV heads; the lower bound of the makespan.
void lay_units(const Problem& problem, Draft& draft);

// Items of every worker.
void cut_balanced(const Problem& problem, Draft& draft);
void cut_paper(const Problem& problem, Draft& draft);
void cut_fixed(const Problem& problem, Draft& draft);
void cut_none(const Problem& problem, Draft& draft);

// The plan's bytes, and again those that follow lengths: positions, page lists, page ids.
void write_plan(const Problem& problem, const Draft& draft, Plan::Impl& impl);
void write_lengths(const Problem& problem, const Draft& draft, Plan::Impl& impl);

// ---------------------------------------------------------------- parts of stages

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
Hull hull_of(std::span<const ResolvedInterval> intervals, int first_pos, int last_pos, int kv_len);
// Query tokens of a tile of a class.
inline int tile_tokens(const TileClass& tile_class, int group) {
  const int tokens = tile_class.rows / group;
  return tokens > 0 ? tokens : 1;
}
inline double item_cost(const Tile& tile, const DraftUnit& unit, int kv_begin, int kv_end) {
  return unit.overhead + unit.per_token * tile.hull.visible(kv_begin, kv_end);
}

// Deals the pieces (in draft.order's order) to the least loaded worker each, and gathers items by worker.
void deal_pieces(int num_workers, Draft& draft);
// items and worker_indptr from pieces and piece_worker, keeping the pieces' order within a worker.
void gather_items(int num_workers, Draft& draft);

// ---------------------------------------------------------------- sections

// Elements that each section of a workspace has room for.
struct SectionCounts {
  int64_t worker_indptr = 0, items = 0, units = 0, rows = 0, page_lists = 0, partials = 0, merge_groups = 0,
          merge_sources = 0, requests = 0, page_indices = 0, partial_floats = 0;
};
// Sets every section's offset, and total_bytes.
void place_sections(const SectionCounts& room, PlanHeader& header);
// The most that a plan within the bounds needs. Throws Error(invalid_argument | unsupported) for senseless bounds.
SectionCounts room_of(const KernelTraits& traits, const PlanBounds& bounds);
// Throws Error(invalid_argument) naming what exceeds the bounds.
void check_within(const Problem& problem, const Draft& draft);
// Floats of a partial's o and lse, rounded up to whole cache lines.
inline int64_t partial_floats(int64_t rows, int64_t qo_heads, int head_dim_vo) {
  return (rows * qo_heads * (head_dim_vo + 1) + 15) & ~int64_t{15};
}

// The sections that upload copies, in the order in which they lie.
struct CopiedSection {
  attention::Section PlanHeader::*section;
  int64_t element_bytes;
};
std::span<const CopiedSection> copied_sections();

}  // namespace weft::planner
