// Requests -> query tiles with the keys they see -> units, and the lower bound of any plan over them.
#include <algorithm>
#include <limits>

#include "attention/plan_draft.h"
#include "base/check.h"

namespace weft::planner {
namespace {

using attention::BoundTerm;

// Where balanced has fewer granules of whole-token tiles than this for each worker, it gives items fewer heads.
constexpr int64_t kMinPiecesPerWorker = 16;

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

// Query tokens of a class's tile.
struct TokensOfClass {
  int tokens[attention::kMaxTileClasses];
  int num_classes;
  // Requests whose lengths lie between the tiles of two classes are a group, and so is their mean: the smallest class
  // at or above it is the one that holds each of them. So the choice for a request does not depend on the batch.
  int class_of(int qo_len) const {
    int c = 0;
    while (c < num_classes - 1 && tokens[c] < qo_len) ++c;
    return c;
  }
};

void lay_tiles(const Problem& p, Draft& draft) {
  const std::vector<TileClass>& classes = p.traits->classes;
  const std::span<const ResolvedInterval> intervals(p.intervals, static_cast<size_t>(p.num_intervals));
  TokensOfClass of_class{{}, static_cast<int>(classes.size())};
  for (int c = 0; c < of_class.num_classes; ++c) {
    // A class that holds no whole token serves only where it is the last one.
    const bool holds = classes[c].rows >= p.group || c == of_class.num_classes - 1;
    of_class.tokens[c] = holds ? tile_tokens(classes[c], p.group) : 0;
  }
  draft.tile_indptr.resize(static_cast<size_t>(p.num_requests) + 1);
  draft.tile_indptr[0] = 0;
  int64_t num_tiles = 0;
  for (int r = 0; r < p.num_requests; ++r) {
    const int qo_len = p.qo_len(r), tokens = of_class.tokens[of_class.class_of(qo_len)];
    num_tiles += qo_len <= tokens ? qo_len > 0 : ceil_div(qo_len, tokens);
    draft.tile_indptr[r + 1] = static_cast<int>(std::min<int64_t>(num_tiles, std::numeric_limits<int32_t>::max()));
  }
  check(num_tiles * p.num_kv_heads <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument,
        "qo_indptr: {} query tokens make too many work units; plan fewer at once", p.num_rows);
  draft.tiles.resize(static_cast<size_t>(num_tiles));
  Tile* out = draft.tiles.data();
  for (int r = 0; r < p.num_requests; ++r) {
    const int qo_len = p.qo_len(r), kv_len = draft.kv_len[r];
    const int c = of_class.class_of(qo_len), tokens = of_class.tokens[c];
    const TileClass& tile_class = classes[c];
    for (int t = draft.tile_indptr[r + 1] - draft.tile_indptr[r] - 1; t >= 0; --t) {
      const int begin = t * tokens, end = std::min(qo_len, begin + tokens);
      const int first_pos = kv_len - qo_len + begin, last_pos = kv_len - qo_len + end - 1;
      const int rows = (end - begin) * p.group;
      // A single token with more rows than the tile makes the kernel walk the keys several times.
      const int walks = rows <= tile_class.rows ? 1 : static_cast<int>(ceil_div(rows, tile_class.rows));
      *out++ = {r,
                c,
                p.qo_indptr[r] + begin,
                p.qo_indptr[r] + end,
                hull_of(intervals, first_pos, last_pos, kv_len),
                tile_class.row * rows + tile_class.item,
                tile_class.token * walks + tile_class.row_token * rows};
    }
  }
}

// Heads of a unit of each class.
struct HeadsOfClass {
  int heads[attention::kMaxTileClasses];
};

HeadsOfClass choose_heads(const Problem& p, const Draft& draft) {
  const auto& classes = p.traits->classes;
  HeadsOfClass result{};
  bool any = false;
  for (size_t c = 0; c < classes.size(); ++c) {
    result.heads[c] = classes[c].all_kv_heads ? p.num_kv_heads : 1;
    any = any || classes[c].all_kv_heads;
  }
  if (!any || p.mode != PlanMode::balanced || p.num_workers == 1) return result;
  // Granules of the whole batch, each as wide as its unit.
  const Granule granule(p.traits->granule);
  const int64_t enough = kMinPiecesPerWorker * p.num_workers;
  int64_t whole = 0, single = 0;
  for (const Tile& tile : draft.tiles) {
    const int64_t pieces = std::max(1, granule.ceil(tile.hull.visible()));
    (classes[tile.tile_class].all_kv_heads ? whole : single) += pieces;
  }
  single *= p.num_kv_heads;
  int parts = 1;
  for (int divisor = 1; whole * parts + single < enough && divisor < p.num_kv_heads;) {
    do ++divisor;
    while (p.num_kv_heads % divisor != 0);
    parts = divisor;
  }
  for (size_t c = 0; c < classes.size(); ++c)
    if (classes[c].all_kv_heads) result.heads[c] = p.num_kv_heads / parts;
  return result;
}

// No plan over these units can be faster: the average load, the largest piece that is never cut, and, since pieces
// are whole, the worker that gets more of them than the others.
double bound_makespan(const Problem& p, const Draft& draft, const HeadsOfClass& heads) {
  const int64_t atom = p.mode == PlanMode::no_split      ? std::numeric_limits<int32_t>::max()
                       : p.mode == PlanMode::fixed_split ? p.fixed_split_size
                                                         : p.traits->granule;
  const Granule granule(atom);
  struct Pieces {
    int64_t count = 0;
    double cost = std::numeric_limits<double>::infinity(), overhead = cost;
  } pieces[attention::kMaxTileClasses];
  double total = 0, largest = 0;
  int units_of_tile[attention::kMaxTileClasses] = {};
  for (size_t c = 0; c < p.traits->classes.size(); ++c) units_of_tile[c] = p.num_kv_heads / heads.heads[c];
  for (const Tile& tile : draft.tiles) {
    const Hull& hull = tile.hull;
    const int visible = hull.visible();
    const double h = heads.heads[tile.tile_class];
    const double cost = tile.overhead + tile.per_token * visible;
    total += cost * p.num_kv_heads;
    int64_t full = granule.floor(hull.end) - granule.ceil(hull.begin);
    const bool has_gap = hull.gap_end > hull.gap_begin;
    if (has_gap) full -= granule.ceil(hull.gap_end) - granule.floor(hull.gap_begin);
    double piece = 0;  // tokens of the largest piece when everything is cut everywhere
    if (full > 0)
      piece = static_cast<double>(atom);
    else if (granule.floor(hull.begin) == granule.ceil(hull.end) - 1)
      piece = visible;
    else if (!has_gap) {
      const int border = granule.floor(hull.end) * granule.size();
      piece = std::max(border - hull.begin, hull.end - border);
    }
    largest = std::max(largest, h * (tile.overhead + tile.per_token * piece));
    if (full <= 0) continue;
    Pieces& of_class = pieces[tile.tile_class];
    of_class.count += full * units_of_tile[tile.tile_class];
    of_class.cost = std::min(of_class.cost, h * tile.per_token * static_cast<double>(atom));
    of_class.overhead = std::min(of_class.overhead, h * tile.overhead);
  }
  double bound = std::max(total / p.num_workers, largest);
  std::sort(std::begin(pieces), std::end(pieces), [](const Pieces& a, const Pieces& b) { return a.cost > b.cost; });
  int64_t count = 0;
  double overhead = std::numeric_limits<double>::infinity();
  for (const Pieces& of_class : pieces) {
    if (of_class.count == 0) continue;
    count += of_class.count;
    overhead = std::min(overhead, of_class.overhead);
    bound = std::max(bound, overhead + of_class.cost * static_cast<double>(ceil_div(count, p.num_workers)));
  }
  return bound;
}

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

void lay_units(const Problem& p, Draft& draft) {
  lay_tiles(p, draft);
  const HeadsOfClass heads = choose_heads(p, draft);
  draft.lower_bound = bound_makespan(p, draft, heads);
  size_t num_units = 0;
  int units_of_tile[attention::kMaxTileClasses] = {};
  for (size_t c = 0; c < p.traits->classes.size(); ++c) units_of_tile[c] = p.num_kv_heads / heads.heads[c];
  for (const Tile& tile : draft.tiles) num_units += static_cast<size_t>(units_of_tile[tile.tile_class]);
  draft.units.resize(num_units);
  DraftUnit* out = draft.units.data();
  for (int r = 0; r < p.num_requests; ++r) {
    const int begin = draft.tile_indptr[r], end = draft.tile_indptr[r + 1];
    if (begin == end) continue;
    const int h = heads.heads[draft.tiles[begin].tile_class];
    for (int head = 0; head < p.num_kv_heads; head += h)
      for (int t = begin; t < end; ++t) {
        const Tile& tile = draft.tiles[t];
        const double overhead = h * tile.overhead, per_token = h * tile.per_token;
        *out++ = {t, head, head + h, 0, overhead, per_token, overhead + per_token * tile.hull.visible()};
      }
  }
}

}  // namespace weft::planner
