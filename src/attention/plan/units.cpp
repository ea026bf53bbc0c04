// Requests -> query tiles with the keys they see -> units, and the lower bound of any plan over them.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "attention/plan/draft.h"
#include "base/check.h"

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

// Which class serves an entry, and the query tokens of a class's tile.
class Classes {
 public:
  Classes(const std::vector<TileClass>& classes, int group) : num_classes_(static_cast<int>(classes.size())) {
    std::iota(by_rows_, by_rows_ + num_classes_, 0);
    std::sort(by_rows_, by_rows_ + num_classes_, [&](int a, int b) {
      return std::pair(classes[a].rows, !classes[a].one_tile) < std::pair(classes[b].rows, !classes[b].one_tile);
    });
    // A class that holds no whole token serves only where it is the last one.
    for (int c = 0; c < num_classes_; ++c)
      tokens_[c] = classes[c].rows >= group || c == last() ? tile_tokens(classes[c].rows, group) : 0;
  }
  int tokens(int tile_class) const { return tokens_[tile_class]; }
  // Requests whose lengths lie between the tiles of two classes are a group, and so is their mean: the smallest class
  // at or above it is the one that holds each of them. So the choice for a request does not depend on the batch.
  int class_of(int qo_len) const {
    for (int i = 0; i < num_classes_ - 1; ++i)
      if (tokens_[by_rows_[i]] >= qo_len) return by_rows_[i];
    return last();
  }

 private:
  int last() const { return by_rows_[num_classes_ - 1]; }
  int num_classes_;
  int by_rows_[attention::kMaxTileClasses];  // the smallest first; of as many rows, one_tile first
  int tokens_[attention::kMaxTileClasses];
};

// Cuts entries into tiles.
class TileCutter {
 public:
  TileCutter(const Problem& p, Draft& draft) : p_(p), draft_(draft), classes_(p.traits->classes, p.group) {}

  // The tiles of one class over rows [row_begin, row_end) of an entry.
  void add_run(int entry_index, int tile_class, int row_begin, int row_end) {
    const Entry& entry = draft_.entries[entry_index];
    const int tokens = classes_.tokens(tile_class), run = static_cast<int>(draft_.tile_indptr.size()) - 1;
    const bool last_level = entry.level == p_.num_levels - 1;
    const int num_tiles = row_end - row_begin <= tokens ? 1 : static_cast<int>(ceil_div(row_end - row_begin, tokens));
    for (int t = num_tiles - 1; t >= 0; --t) {
      const int begin = row_begin + t * tokens, end = begin + std::min(tokens, row_end - begin);
      const Hull hull = p_.num_intervals == 0 ? Hull{0, entry.len} : hull_of_rows(p_, draft_, entry, begin, end);
      const Costs& c = costs_of(tile_class, (end - begin) * p_.group);
      draft_.tiles.push_back({entry_index, run, tile_class, begin, end, entry.head_end - entry.head_begin, 1,
                              !last_level && hull.begin == hull.end, hull, c.overhead, c.per_token,
                              c.overhead + c.per_token * hull.visible()});
    }
    draft_.tile_indptr.push_back(static_cast<int>(draft_.tiles.size()));
  }

  // An entry takes the class that holds all of its rows, so requests that share pages share tiles.
  void add_entry(int entry_index) {
    const Entry& entry = draft_.entries[entry_index];
    const int tokens = entry.row_end - entry.row_begin;
    if (p_.mode != PlanMode::fixed_split || entry.place_end - entry.place_begin == 1)
      return add_run(entry_index, classes_.class_of(tokens), entry.row_begin, entry.row_end);
    // Whatever shares a request's tiles, its class is its own, and so are its bits: neighbours of one class are a run.
    int run_begin = entry.row_begin, run_class = -1;
    for (int place = entry.place_begin; place < entry.place_end; ++place) {
      const int begin = draft_.row_indptr[place], end = draft_.row_indptr[place + 1];
      if (begin == end) continue;
      const int own = classes_.class_of(end - begin);
      if (own == run_class) continue;
      if (run_class >= 0) add_run(entry_index, run_class, run_begin, begin);
      run_begin = begin;
      run_class = own;
    }
    add_run(entry_index, run_class, run_begin, entry.row_end);
  }

  int64_t num_tiles_at_most(int tokens) const {
    return ceil_div(tokens, std::max(1, classes_.tokens(classes_.class_of(tokens))));
  }

 private:
  struct Costs {
    int tile_class = -1, rows = 0;
    double overhead = 0, per_token = 0;
  };
  // Of a tile of so many fused rows, over one KV head. Neighbours are mostly alike.
  const Costs& costs_of(int tile_class, int rows) {
    if (last_costs_.tile_class == tile_class && last_costs_.rows == rows) return last_costs_;
    const TileClass& c = p_.traits->classes[tile_class];
    // A single token with more rows than the tile makes the kernel walk the keys several times.
    const int walks = rows <= c.rows ? 1 : static_cast<int>(ceil_div(rows, c.rows));
    return last_costs_ = {tile_class, rows, c.row * rows + c.item, c.token * walks + c.row_token * rows};
  }

  const Problem& p_;
  Draft& draft_;
  Classes classes_;
  Costs last_costs_;
};

void lay_tiles(const Problem& p, Draft& draft) {
  TileCutter cutter(p, draft);
  int64_t most = 0;
  for (const Entry& entry : draft.entries) {
    const int rows = entry.row_end - entry.row_begin;
    most += p.mode == PlanMode::fixed_split || rows == 1 ? rows : cutter.num_tiles_at_most(rows);
  }
  check(most * p.num_kv_heads <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument,
        "qo_indptr: {} query tokens make too many work units; plan fewer at once", p.num_rows);
  draft.tiles.clear();
  draft.tile_indptr.assign(1, 0);
  for (int e = 0; e < static_cast<int>(draft.entries.size()); ++e)
    if (draft.entries[e].row_begin < draft.entries[e].row_end) cutter.add_entry(e);
}

// Heads of a unit of each class.
struct HeadsOfClass {
  int heads[attention::kMaxTileClasses];
  int of(const Tile& tile) const { return std::min(tile.heads, heads[tile.tile_class]); }
};

HeadsOfClass choose_heads(const Problem& p, const Draft& draft) {
  const auto& classes = p.traits->classes;
  HeadsOfClass result{};
  bool any = false;
  // At most a part of the KV heads, a divisor of them.
  const auto heads_in = [&](const TileClass& tile_class, int parts) {
    if (!tile_class.all_kv_heads) return 1;
    int heads = p.num_kv_heads / parts;
    while (heads > 1 && (p.num_kv_heads % heads != 0 || int64_t{tile_class.rows} * heads > tile_class.most_states))
      --heads;
    return heads;
  };
  for (size_t c = 0; c < classes.size(); ++c) {
    result.heads[c] = heads_in(classes[c], 1);
    any = any || classes[c].all_kv_heads;
  }
  if (!any || p.mode != PlanMode::balanced || p.num_workers == 1) return result;
  // Granules of the whole batch, each as wide as its unit.
  const Granule granule(p.traits->granule);
  const int64_t enough = int64_t{p.traits->thresholds.granules_per_worker} * p.num_workers;
  int64_t whole = 0, single = 0;
  for (const Tile& tile : draft.tiles) {
    if (whole + single >= enough) return result;
    if (tile.skipped) continue;
    const int64_t pieces = std::max(1, granule.ceil(tile.hull.visible()));
    if (classes[tile.tile_class].all_kv_heads && tile.heads > 1)
      whole += pieces * (tile.heads / result.of(tile));
    else
      single += pieces * tile.heads;
  }
  int parts = 1;
  for (int divisor = 1; whole * parts + single < enough && divisor < p.num_kv_heads;) {
    do ++divisor;
    while (p.num_kv_heads % divisor != 0);
    parts = divisor;
  }
  for (size_t c = 0; c < classes.size(); ++c) result.heads[c] = heads_in(classes[c], parts);
  return result;
}

// No plan over these units can be faster: the average load, the largest piece that is never cut, and, since pieces
// are whole, the worker that gets more of them than the others.
class LowerBound {
 public:
  explicit LowerBound(const Problem& p)
      : num_workers_(p.num_workers),
        atom_(p.mode == PlanMode::no_split      ? std::numeric_limits<int32_t>::max()
              : p.mode == PlanMode::fixed_split ? p.fixed_split_size
                                                : p.traits->granule),
        granule_(atom_) {}

  // The units of a tile, whose costs are those of one unit.
  void add(const Tile& tile, int units) {
    total_ += tile.cost * units;
    const Hull& hull = tile.hull;
    const bool has_gap = hull.gap_end > hull.gap_begin;
    int64_t full = granule_.floor(hull.end) - granule_.ceil(hull.begin);
    if (has_gap) full -= granule_.ceil(hull.gap_end) - granule_.floor(hull.gap_begin);
    if (full <= 0) return add_piece(tile, largest_piece(hull, has_gap));
    Pieces& of_class = pieces_[tile.tile_class];
    of_class.count += full * units;
    if (tile.overhead == of_class.last_overhead && tile.per_token == of_class.last_per_token) return;
    of_class.last_overhead = tile.overhead;
    of_class.last_per_token = tile.per_token;
    of_class.cost = std::min(of_class.cost, tile.per_token * static_cast<double>(atom_));
    of_class.overhead = std::min(of_class.overhead, tile.overhead);
    add_piece(tile, static_cast<double>(atom_));
  }

  double makespan() {
    double bound = std::max(total_ / num_workers_, largest_);
    std::sort(std::begin(pieces_), std::end(pieces_), [](const Pieces& a, const Pieces& b) { return a.cost > b.cost; });
    int64_t count = 0;
    double overhead = kInfinity;
    for (const Pieces& of_class : pieces_) {
      if (of_class.count == 0) continue;
      count += of_class.count;
      overhead = std::min(overhead, of_class.overhead);
      bound = std::max(bound, overhead + of_class.cost * static_cast<double>(ceil_div(count, num_workers_)));
    }
    return bound;
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  struct Pieces {
    int64_t count = 0;
    double cost = kInfinity, overhead = kInfinity;
    double last_overhead = -1, last_per_token = -1;
  };

  void add_piece(const Tile& tile, double tokens) {
    largest_ = std::max(largest_, tile.overhead + tile.per_token * tokens);
  }
  // Tokens of the largest piece when everything is cut everywhere and no granule is full.
  double largest_piece(const Hull& hull, bool has_gap) const {
    if (granule_.floor(hull.begin) == granule_.ceil(hull.end) - 1) return hull.visible();
    if (has_gap) return 0;
    const int border = granule_.floor(hull.end) * granule_.size();
    return std::max(border - hull.begin, hull.end - border);
  }

  const int num_workers_;
  const int64_t atom_;
  const Granule granule_;
  double total_ = 0, largest_ = 0;
  Pieces pieces_[attention::kMaxTileClasses];
};

}  // namespace

Hull hull_of(std::span<const ResolvedInterval> intervals, int first_pos, int last_pos, int kv_len) {
  if (intervals.empty()) return {0, kv_len, 0, 0};
  // Bounds never fall as the position grows, so the first row has the lowest and the last row the highest.
  Hull hull;
  for (const ResolvedInterval& interval : intervals) {
    const int begin = lower_of(interval, first_pos, kv_len), end = upper_of(interval, last_pos, kv_len);
    if (begin >= end) continue;
    if (hull.begin == hull.end) {
      hull = {begin, end, 0, 0};
      continue;
    }
    if (begin > hull.end) {
      hull.gap_begin = hull.end;
      hull.gap_end = begin;
    } else if (end < hull.begin) {
      hull.gap_begin = end;
      hull.gap_end = hull.begin;
    }
    hull.begin = std::min(hull.begin, begin);
    hull.end = std::max(hull.end, end);
  }
  return hull;
}

Hull joined(const Hull& a, const Hull& b) {
  if (a.begin == a.end) return b;
  if (b.begin == b.end) return a;
  Hull hull{std::min(a.begin, b.begin), std::max(a.end, b.end), 0, 0};
  // What one does not see on its left, in its gap and on its right, the other must not see either.
  const int hidden_a[3][2] = {{hull.begin, a.begin}, {a.gap_begin, a.gap_end}, {a.end, hull.end}};
  const int hidden_b[3][2] = {{hull.begin, b.begin}, {b.gap_begin, b.gap_end}, {b.end, hull.end}};
  for (const auto& [a_begin, a_end] : hidden_a)
    for (const auto& [b_begin, b_end] : hidden_b) {
      const int begin = std::max(a_begin, b_begin), end = std::min(a_end, b_end);
      if (end - begin > hull.gap_end - hull.gap_begin) hull.gap_begin = begin, hull.gap_end = end;
    }
  return hull;
}

Hull within_list(const Hull& hull, int first_pos, int len) {
  const auto inside = [&](int pos) { return std::clamp(pos - first_pos, 0, len); };
  Hull local{inside(hull.begin), inside(hull.end), inside(hull.gap_begin), inside(hull.gap_end)};
  if (local.begin == local.end) return {};
  // A gap at an end is none.
  if (local.gap_begin == local.gap_end)
    local.gap_begin = local.gap_end = 0;
  else if (local.gap_begin <= local.begin)
    local = {local.gap_end, local.end, 0, 0};
  else if (local.gap_end >= local.end)
    local = {local.begin, local.gap_begin, 0, 0};
  return local.begin < local.end ? local : Hull{};
}

Hull hull_of_rows(const Problem& p, const Draft& draft, const Entry& entry, int row_begin, int row_end) {
  const std::span<const ResolvedInterval> intervals(p.intervals, static_cast<size_t>(p.num_intervals));
  if (intervals.empty()) return {0, entry.len, 0, 0};
  if (p.plain) {
    const int kv_len = draft.kv_len[entry.place_begin], first_pos = kv_len - (entry.row_end - entry.row_begin);
    return hull_of(intervals, first_pos + row_begin - entry.row_begin, first_pos + row_end - 1 - entry.row_begin,
                   kv_len);
  }
  Hull hull;
  if (p.blocks != nullptr) {
    if (!p.blocks->kv_positions.empty()) return {0, entry.len, 0, 0};
    int low = std::numeric_limits<int>::max(), high = -low;
    for (int row = row_begin; row < row_end; ++row) {
      low = std::min(low, row_position(p, draft, entry.place_begin, row));
      high = std::max(high, row_position(p, draft, entry.place_begin, row));
    }
    return within_list(hull_of(intervals, low, high, draft.kv_len[entry.place_begin]), 0, entry.len);
  }
  for (int place = entry.place_begin; place < entry.place_end; ++place) {
    const int request_begin = draft.row_indptr[place], request_end = draft.row_indptr[place + 1];
    const int begin = std::max(row_begin, request_begin), end = std::min(row_end, request_end);
    if (begin >= end) continue;
    const int kv_len = draft.kv_len[p.request_at(place)], shift = kv_len - request_end;
    hull = joined(hull, hull_of(intervals, begin + shift, end - 1 + shift, kv_len));
  }
  return within_list(hull, entry.first_pos, entry.len);
}

double entry_cost(const Problem& p, Draft& draft, const Entry& entry) {
  draft.entries.assign(1, entry);
  draft.tiles.clear();
  draft.tile_indptr.assign(1, 0);
  TileCutter(p, draft).add_entry(0);
  double cost = 0;
  for (const Tile& tile : draft.tiles) cost += tile.cost;
  return cost;
}

void lay_units(const Problem& p, Draft& draft) {
  lay_tiles(p, draft);
  const HeadsOfClass heads = choose_heads(p, draft);
  LowerBound bound(p);
  size_t num_units = 0;
  for (Tile& tile : draft.tiles) {
    tile.unit_heads = heads.of(tile);
    const double h = tile.unit_heads;
    tile.overhead *= h;
    tile.per_token *= h;
    tile.cost = tile.overhead + tile.per_token * tile.hull.visible();
    if (tile.skipped) continue;
    const int units = tile.unit_heads == tile.heads ? 1 : tile.heads / tile.unit_heads;
    bound.add(tile, units);
    num_units += static_cast<size_t>(units);
  }
  draft.lower_bound = bound.makespan();
  draft.units.resize(num_units);
  DraftUnit* out = draft.units.data();
  for (size_t run = 0; run + 1 < draft.tile_indptr.size(); ++run) {
    const int begin = draft.tile_indptr[run], end = draft.tile_indptr[run + 1];
    const Entry& entry = draft.entries[draft.tiles[begin].entry];
    const int h = draft.tiles[begin].unit_heads;
    for (int head = entry.head_begin; head < entry.head_end; head += h)
      for (int t = begin; t < end; ++t)
        if (!draft.tiles[t].skipped) *out++ = {t, head, head + h, 0};
  }
}

}  // namespace weft::planner
