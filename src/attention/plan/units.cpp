// Requests -> query tiles with the keys they see -> units, and the lower bound of any plan over them.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "attention/plan/plan_builder.h"
#include "base/check.h"

namespace weft::planner {
namespace {

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
  // All that serve entries of at most so many tokens, the smallest first.
  std::span<const int> up_to(int qo_len) const {
    return {by_rows_,
            static_cast<size_t>(std::find(by_rows_, by_rows_ + num_classes_, class_of(qo_len)) - by_rows_) + 1};
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
  TileCutter(const Problem& p, PlanBuilder& builder) : p_(p), builder_(builder), classes_(p.traits->classes, p.group) {}

  // The tiles of one class over rows [row_begin, row_end) of an entry.
  void add_run(int entry_index, int tile_class, int row_begin, int row_end) {
    const int tokens = classes_.tokens(tile_class);
    for (int t = static_cast<int>(ceil_div(row_end - row_begin, tokens)) - 1; t >= 0; --t) {
      const int begin = row_begin + t * tokens;
      add_tile(entry_index, tile_class, begin, begin + std::min(tokens, row_end - begin));
    }
    builder_.tile_indptr.push_back(static_cast<int>(builder_.tiles.size()));
  }

  // An entry takes the class that holds all of its rows, so requests that share pages share tiles.
  void add_entry(int entry_index) {
    const Entry& entry = builder_.entries[entry_index];
    if (p_.mode == PlanMode::fixed_split && entry.place_end - entry.place_begin > 1) return add_requests(entry_index);
    const int tokens = entry.row_end - entry.row_begin, tile_class = classes_.class_of(tokens);
    if (tokens > classes_.tokens(tile_class)) return add_run(entry_index, tile_class, entry.row_begin, entry.row_end);
    add_tile(entry_index, tile_class, entry.row_begin, entry.row_end);
    builder_.tile_indptr.push_back(static_cast<int>(builder_.tiles.size()));
  }

  int64_t num_tiles_at_most(int tokens) const {
    return ceil_div(tokens, std::max(1, classes_.tokens(classes_.class_of(tokens))));
  }

 private:
  struct Costs {
    int tile_class = -1, rows = 0;
    double overhead = 0, per_token = 0;
  };

  // The requests of an entry that is split the same whoever shares it.
  void add_requests(int entry_index) {
    const Entry& entry = builder_.entries[entry_index];
    // Whatever shares a request's tiles, its class is its own, and so are its bits: neighbours of one class are a run.
    int run_begin = entry.row_begin, run_class = -1;
    for (int place = entry.place_begin; place < entry.place_end; ++place) {
      const int begin = builder_.row_indptr[place], end = builder_.row_indptr[place + 1];
      if (begin == end) continue;
      const int own = classes_.class_of(end - begin);
      if (own == run_class) continue;
      if (run_class >= 0) add_run(entry_index, run_class, run_begin, begin);
      run_begin = begin;
      run_class = own;
    }
    add_run(entry_index, run_class, run_begin, entry.row_end);
  }

  void add_tile(int entry_index, int tile_class, int begin, int end) {
    const Entry& entry = builder_.entries[entry_index];
    const int run = static_cast<int>(builder_.tile_indptr.size()) - 1;
    const bool last_level = entry.level == p_.num_levels - 1;
    const VisibleRange visible =
        p_.num_intervals == 0 ? VisibleRange{0, entry.len} : visible_to_rows(p_, builder_, entry, begin, end);
    const bool sees_none = visible.begin == visible.end;
    const Costs& c = costs_of(tile_class, (end - begin) * p_.group);
    builder_.tiles.emplace_back(entry_index, run, tile_class, begin, end, entry.head_end - entry.head_begin, 1,
                                !last_level && sees_none,
                                last_level && !sees_none && visible.end == entry.len && p_.blocks == nullptr, visible,
                                c.overhead, c.per_token, c.overhead + c.per_token * visible.num_keys());
  }
  // Of a tile of so many fused rows, over one KV head. Neighbours are mostly alike.
  const Costs& costs_of(int tile_class, int rows) {
    if (last_costs_.tile_class == tile_class && last_costs_.rows == rows) return last_costs_;
    const TileClass& c = p_.traits->classes[tile_class];
    builder_.tile_kinds |= 1 << static_cast<int>(c.kind);
    // A single token with more rows than the tile makes the kernel walk the keys several times.
    const int walks = rows <= c.rows ? 1 : static_cast<int>(ceil_div(rows, c.rows));
    return last_costs_ = {tile_class, rows, c.row * rows + c.item, c.token * walks + c.row_token * rows};
  }

  const Problem& p_;
  PlanBuilder& builder_;
  Classes classes_;
  Costs last_costs_;
};

// Heads of a unit of each class.
struct HeadsOfClass {
  int heads[attention::kMaxTileClasses];
  int of(const Tile& tile) const { return std::min(tile.heads, heads[tile.tile_class]); }
};

HeadsOfClass choose_heads(const Problem& p, const PlanBuilder& builder) {
  const auto& classes = p.traits->classes;
  HeadsOfClass result{};
  bool any = false;
  // At most 1 / divisor of the KV heads, a divisor of them.
  const auto heads_in = [&](const TileClass& tile_class, int divisor) {
    if (!tile_class.all_kv_heads) return 1;
    int heads = p.num_kv_heads / divisor;
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
  for (const Tile& tile : builder.tiles) {
    if (whole + single >= enough) return result;
    if (tile.skipped) continue;
    const int64_t pieces = std::max(1, granule.ceil(tile.visible.num_keys()));
    if (classes[tile.tile_class].all_kv_heads && tile.heads > 1)
      whole += pieces * (tile.heads / result.of(tile));
    else
      single += pieces * tile.heads;
  }
  int divisor = 1;
  for (int next = 1; whole * divisor + single < enough && next < p.num_kv_heads;) {
    do ++next;
    while (p.num_kv_heads % next != 0);
    divisor = next;
  }
  for (size_t c = 0; c < classes.size(); ++c) result.heads[c] = heads_in(classes[c], divisor);
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
    const VisibleRange& visible = tile.visible;
    const bool has_gap = visible.gap_end > visible.gap_begin;
    int64_t full = granule_.floor(visible.end) - granule_.ceil(visible.begin);
    if (has_gap) full -= granule_.ceil(visible.gap_end) - granule_.floor(visible.gap_begin);
    if (full <= 0) return add_piece(tile, largest_piece(visible, has_gap));
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
  double largest_piece(const VisibleRange& visible, bool has_gap) const {
    if (granule_.floor(visible.begin) == granule_.ceil(visible.end) - 1) return visible.num_keys();
    if (has_gap) return 0;
    const int border = granule_.floor(visible.end) * granule_.size();
    return std::max(border - visible.begin, visible.end - border);
  }

  const int num_workers_;
  const int64_t atom_;
  const Granule granule_;
  double total_ = 0, largest_ = 0;
  Pieces pieces_[attention::kMaxTileClasses];
};

}  // namespace

std::vector<attention::TileKind> kinds_of_entries(const KernelTraits& traits, int group, int most_tokens) {
  const Classes classes(traits.classes, group);
  std::vector<attention::TileKind> kinds;
  for (const int c : classes.up_to(most_tokens)) kinds.push_back(traits.classes[static_cast<size_t>(c)].kind);
  return kinds;
}

double entry_cost(const Problem& p, PlanBuilder& builder, const Entry& entry) {
  builder.entries.assign(1, entry);
  builder.tiles.clear();
  builder.tile_indptr.assign(1, 0);
  TileCutter(p, builder).add_entry(0);
  double cost = 0;
  for (const Tile& tile : builder.tiles) cost += tile.cost;
  return cost;
}

void lay_tiles(const Problem& p, PlanBuilder& builder) {
  TileCutter cutter(p, builder);
  int64_t most = 0;
  for (const Entry& entry : builder.entries) {
    const int rows = entry.row_end - entry.row_begin;
    most += p.mode == PlanMode::fixed_split || rows == 1 ? rows : cutter.num_tiles_at_most(rows);
  }
  check(most * p.num_kv_heads <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument,
        "qo_indptr: {} query tokens make too many work units; plan fewer at once", p.num_rows);
  builder.tile_kinds = 0;
  builder.tiles.clear();
  builder.tile_indptr.assign(1, 0);
  for (int e = 0; e < static_cast<int>(builder.entries.size()); ++e)
    if (builder.entries[e].row_begin < builder.entries[e].row_end) cutter.add_entry(e);
}

int workers_of(const Problem& p, int tile_kinds) {
  if (p.num_workers != 0) return p.num_workers;
  const int workers = p.traits->default_workers(tile_kinds, p.mode);
  return p.bounds != nullptr ? std::clamp(p.bounds->workers, 1, workers) : workers;
}

void lay_units(const Problem& p, PlanBuilder& builder) {
  const HeadsOfClass heads = choose_heads(p, builder);
  LowerBound bound(p);
  // Of a run of several tiles the units over one KV head belong together, and not those over one tile.
  builder.joins_heads = p.traits->walks_heads && p.mode == PlanMode::balanced && p.num_levels == 1 &&
                        builder.tiles.size() + 1 == builder.tile_indptr.size();
  size_t num_units = 0;
  for (Tile& tile : builder.tiles) {
    tile.unit_heads = heads.of(tile);
    const double h = tile.unit_heads;
    tile.overhead *= h;
    tile.per_token *= h;
    tile.cost = tile.overhead + tile.per_token * tile.visible.num_keys();
    if (tile.skipped) continue;
    const int units = tile.unit_heads == tile.heads ? 1 : tile.heads / tile.unit_heads;
    bound.add(tile, units);
    num_units += builder.joins_heads ? 1 : static_cast<size_t>(units);
  }
  builder.lower_bound = bound.makespan();
  builder.units.resize(num_units);
  PlannedUnit* out = builder.units.data();
  const Tile* const tiles = builder.tiles.data();
  const size_t num_runs = builder.tile_indptr.size() - 1;
  for (size_t run = 0; run < num_runs; ++run) {
    const int begin = builder.tile_indptr[run], end = builder.tile_indptr[run + 1];
    const Tile& first = tiles[begin];
    const int head_begin = builder.entries[first.entry].head_begin, head_end = head_begin + first.heads;
    const int h = builder.joins_heads ? first.heads : first.unit_heads;
    for (int head = head_begin; head < head_end; head += h)
      for (int t = begin; t < end; ++t)
        if (!tiles[t].skipped) *out++ = {t, head, head + h, 0};
  }
}

}  // namespace weft::planner
