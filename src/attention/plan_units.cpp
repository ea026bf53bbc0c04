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

void lay_tiles(const Problem& p, Draft& draft) {
  const std::vector<TileClass>& classes = p.traits->classes;
  const std::span<const ResolvedInterval> intervals(p.intervals, static_cast<size_t>(p.num_intervals));
  draft.tiles.clear();
  draft.tile_indptr.resize(static_cast<size_t>(p.num_requests) + 1);
  draft.tile_indptr[0] = 0;
  int64_t num_tiles = 0;
  for (int r = 0; r < p.num_requests; ++r) {
    const int qo_len = p.qo_len(r);
    if (qo_len > 0) {
      const int kv_len = draft.kv_len[r];
      const int c = class_of(*p.traits, int64_t{qo_len} * p.group);
      const TileClass& tile_class = classes[c];
      const int tokens = tile_tokens(tile_class, p.group);
      const int n = static_cast<int>(ceil_div(qo_len, tokens));
      num_tiles += n;
      check(num_tiles * p.num_kv_heads <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument,
            "qo_indptr: {} query tokens make too many work units; plan fewer at once", p.num_rows);
      for (int t = n - 1; t >= 0; --t) {
        const int begin = t * tokens, end = std::min(qo_len, begin + tokens);
        const int first_pos = kv_len - qo_len + begin, last_pos = kv_len - qo_len + end - 1;
        const double rows = static_cast<double>(end - begin) * p.group;
        // A single token with more rows than the tile makes the kernel walk the keys several times.
        const double walks = static_cast<double>(ceil_div(int64_t{end - begin} * p.group, tile_class.rows));
        draft.tiles.push_back({r, c, p.qo_indptr[r] + begin, p.qo_indptr[r] + end,
                               hull_of(intervals, first_pos, last_pos, kv_len),
                               tile_class.row * rows + tile_class.item,
                               tile_class.token * walks + tile_class.row_token * rows});
      }
    }
    draft.tile_indptr[r + 1] = static_cast<int>(draft.tiles.size());
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
  const int64_t granule = p.traits->granule, enough = kMinPiecesPerWorker * p.num_workers;
  int64_t whole = 0, single = 0;
  for (const Tile& tile : draft.tiles) {
    const int64_t pieces = std::max<int64_t>(1, (tile.hull.visible() + granule - 1) / granule);
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
  struct Pieces {
    int64_t count = 0;
    double cost = std::numeric_limits<double>::infinity(), overhead = cost;
  } pieces[attention::kMaxTileClasses];
  double total = 0, largest = 0;
  for (const Tile& tile : draft.tiles) {
    const Hull& hull = tile.hull;
    const int visible = hull.visible();
    const double h = heads.heads[tile.tile_class];
    const double cost = tile.overhead + tile.per_token * visible;
    total += cost * p.num_kv_heads;
    largest = std::max(largest, h * (visible <= atom ? cost : tile.overhead + tile.per_token * static_cast<double>(atom)));
    int64_t full = hull.end / atom - (hull.begin + atom - 1) / atom;
    if (hull.gap_end > hull.gap_begin)
      full -= (hull.gap_end + atom - 1) / atom - hull.gap_begin / atom;
    if (full <= 0) continue;
    Pieces& of_class = pieces[tile.tile_class];
    of_class.count += full * (p.num_kv_heads / heads.heads[tile.tile_class]);
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

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

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

int class_of(const KernelTraits& traits, int64_t fused_rows) {
  // Requests whose fused lengths lie between the same two classes are a group, and so is their mean: the smallest
  // class at or above it is the one that holds each of them. The choice does not depend on the batch.
  const int n = static_cast<int>(traits.classes.size());
  for (int c = 0; c < n; ++c)
    if (traits.classes[static_cast<size_t>(c)].rows >= fused_rows) return c;
  return n - 1;
}

int tile_tokens(const TileClass& tile_class, int group) { return std::max(1, tile_class.rows / group); }

double item_cost(const Tile& tile, const DraftUnit& unit, int kv_begin, int kv_end) {
  return unit.overhead + unit.per_token * tile.hull.visible(kv_begin, kv_end);
}

void lay_units(const Problem& p, Draft& draft) {
  lay_tiles(p, draft);
  const HeadsOfClass heads = choose_heads(p, draft);
  draft.lower_bound = bound_makespan(p, draft, heads);
  draft.units.clear();
  for (int r = 0; r < p.num_requests; ++r) {
    const int begin = draft.tile_indptr[r], end = draft.tile_indptr[r + 1];
    if (begin == end) continue;
    const int h = heads.heads[draft.tiles[begin].tile_class];
    for (int head = 0; head < p.num_kv_heads; head += h)
      for (int t = begin; t < end; ++t) {
        const Tile& tile = draft.tiles[t];
        const double overhead = h * tile.overhead, per_token = h * tile.per_token;
        draft.units.push_back({t, head, head + h, 0, overhead, per_token, overhead + per_token * tile.hull.visible()});
      }
  }
}

}  // namespace weft::planner
