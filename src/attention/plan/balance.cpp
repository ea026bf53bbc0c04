// balanced: every unit on one line, and the line cut where each worker's share ends.
//
// A worker's share is what fits under a cap of cost: whole units first, then a chunk of the next one that ends on a
// granule. The cap is the smallest for which the last worker's share reaches the end of the line: what a cap leaves
// over, dealt to all workers, says how far to raise it, and bisection does the rest. Each worker starts where the one
// before it stopped, so it shares at most two units with others.
//
// Entries with several query tiles are dealt first (deal.cpp). What no longer fits under the average load stays on the
// line and levels the workers' loads.
#include <algorithm>
#include <limits>
#include <utility>

#include "attention/plan/plan_builder.h"

namespace weft::planner {
namespace {

// How well the cap is known decides how long the host plans, and follows from no machine that runs the plan: no traits.
// The bisection stops when the cap is known to this share of the lower bound.
constexpr double kCapTolerance = 1.0 / 512;
// A cap this near to the lower bound needs no bisection, each step of which is another pass over the line.
constexpr double kNearEnough = 1.0 / 64;

class Line {
 public:
  // Its chunks go behind what builder.pieces holds.
  Line(const Problem& problem, PlanBuilder& builder)
      : builder_(builder),
        granule_(problem.traits->granule),
        least_sliver_(problem.traits->thresholds.least_sliver),
        num_workers_(problem.num_workers),
        first_piece_(builder.pieces.size()),
        load_(builder.load.data()),
        line_(builder.on_line.data()),
        tiles_(builder.tiles.data()) {
    // A worker adds three pieces at most where stretches are joined: what it cuts, and whole units on either side.
    const size_t most = builder.on_line.size() + (builder.joins_heads ? 3 : 1) * static_cast<size_t>(num_workers_);
    builder.pieces.resize(first_piece_ + most);
    builder.piece_worker.resize(first_piece_ + most);
    if (builder.joins_heads) {
      builder.stretches.swap(builder.units);
      builder.units.resize(most);
    }
    units_ = builder.units.data();
    stretches_ = builder.stretches.data();
    pieces_ = builder.pieces.data();
    piece_worker_ = builder.piece_worker.data();
    builder.joins_heads ? sum_costs<true>() : sum_costs<false>();
  }

  // Deals units and their chunks to workers, beside what they carry already. Returns the cost that does not fit; below
  // 0: the room that nothing fills.
  double fill(double cap) { return builder_.joins_heads ? fill<true>(cap) : fill<false>(cap); }
  // The chunks of the last fill, all of which fitted.
  void finish() {
    builder_.pieces.resize(num_pieces_);
    builder_.piece_worker.resize(num_pieces_);
    if (builder_.joins_heads) builder_.units.resize(num_units_);
  }
  const Tile& tile_of(size_t place) const {
    return builder_.joins_heads ? tile_of<true>(place) : tile_of<false>(place);
  }
  double largest() const { return largest_; }  // cost of a unit
  // Of each chunk where units are alike and all workers have a chunk of one: no other plan has fewer to merge. Infinity
  // where they are not, or more than the workers.
  double cost_of_chunks() const;

 private:
  // A place of the line is a unit, or a stretch of them: the loop over workers is compiled for either.
  template <bool joins_heads>
  double fill(double cap);
  template <bool joins_heads>
  const Tile& tile_of(size_t place) const {
    return tiles_[joins_heads ? stretches_[place].tile : units_[line_[place]].tile];
  }
  // Units at a place of the line, each as costly as its tile says.
  template <bool joins_heads>
  int count_at(size_t place) const {
    return joins_heads ? line_count_[place] : 1;
  }
  // The unit that is `n` of those at a place.
  template <bool joins_heads>
  int unit_of(size_t place, int first, int n) {
    if constexpr (!joins_heads) return line_[place];
    const PlannedUnit& stretch = stretches_[place];
    const int heads = tiles_[stretch.tile].unit_heads, begin = stretch.head_begin + first * heads;
    units_[num_units_] = {stretch.tile, begin, begin + n * heads, 0};
    return num_units_++;
  }
  void emit(int worker, int unit, int begin, int end, int chunk) {
    pieces_[num_pieces_] = {unit, begin, end, chunk};
    piece_worker_[num_pieces_++] = worker;
    units_[unit].num_chunks = chunk + 1;
  }
  template <bool joins_heads>
  void emit_whole(int worker, size_t place, int first, int n) {
    const VisibleRange& visible = tile_of<joins_heads>(place).visible;
    emit(worker, unit_of<joins_heads>(place, first, n), visible.begin, visible.end, 0);
  }
  // Where a chunk of the unit from `begin` on ends that costs at most `room`; -1 when none is worth it.
  int chunk_end(const Tile& tile, int begin, double room) const {
    const VisibleRange& visible = tile.visible;
    const double tokens = (room - tile.overhead) / tile.per_token;
    if (tokens < 1) return -1;
    int to = begin + static_cast<int>(tokens);
    if (to > visible.gap_begin && visible.gap_end > visible.gap_begin)
      to += visible.gap_end - std::clamp(begin, visible.gap_begin, visible.gap_end);
    to = granule_.floor(to) * granule_.size();
    return to > begin && to < visible.end && 2 * visible.num_keys(begin, to) >= granule_.size() ? to : -1;
  }
  // Under the cap, of a worker and those behind it.
  double room_from(int worker, double room, double cap) const {
    while (++worker < num_workers_) room += cap - load_[worker];
    return room;
  }
  template <bool joins_heads>
  void sum_costs() {
    const size_t n = builder_.on_line.size();
    if (joins_heads) {
      builder_.line_count.resize(n);
      line_count_ = builder_.line_count.data();
      for (size_t i = 0; i < n; ++i) {
        const PlannedUnit& stretch = stretches_[i];
        builder_.line_count[i] = (stretch.head_end - stretch.head_begin) / tiles_[stretch.tile].unit_heads;
      }
    }
    builder_.line_cost.resize(n + 1);
    double* const cost = builder_.line_cost.data();
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      const double each = tile_of<joins_heads>(i).cost;
      cost[i] = sum;
      sum += each * count_at<joins_heads>(i);
      largest_ = std::max(largest_, each);
      num_on_line_ += count_at<joins_heads>(i);
    }
    cost[n] = sum;
  }

  PlanBuilder& builder_;
  const Granule granule_;
  const double least_sliver_;
  const int num_workers_;
  const size_t first_piece_;
  const double* const load_;
  const int* const line_;
  const Tile* const tiles_;
  PlannedUnit* units_;
  const PlannedUnit* stretches_;
  const int* line_count_ = nullptr;
  PlannedItem* pieces_;
  int* piece_worker_;
  size_t num_pieces_ = 0;
  int num_units_ = 0;  // of stretches
  double largest_ = 0;
  int64_t num_on_line_ = 0;
};

double Line::cost_of_chunks() const {
  const double sum = builder_.line_cost.back();
  if (num_on_line_ > num_workers_ || static_cast<double>(num_on_line_) * largest_ > sum * (1 + 1e-9))
    return std::numeric_limits<double>::infinity();
  const Tile& tile = tile_of(0);
  const int keys = tile.visible.num_keys();
  const int64_t granules = ceil_div(granule_.ceil(keys), num_workers_ / num_on_line_);
  return tile.overhead + tile.per_token * std::min(keys, static_cast<int>(granules) * granule_.size());
}

template <bool joins_heads>
double Line::fill(double cap) {
  const double* cost = builder_.line_cost.data();
  const size_t n = builder_.on_line.size();
  const double snap = cap * least_sliver_;
  size_t i = 0, usual = 0;            // usual: how many whole places the worker before took
  int given = 0;                      // units of place i that were given away
  int unit = 0, from = 0, chunk = 0;  // of the next one, once some of it is given away
  double rest = 0;                    // cost of what is left of it
  num_pieces_ = first_piece_;
  num_units_ = 0;
  const auto give = [&](int units) {
    given += units;
    if (given < count_at<joins_heads>(i)) return;
    given = 0;
    ++i;
  };
  for (int worker = 0; worker < num_workers_; ++worker) {
    double room = cap - load_[worker];
    if (chunk > 0 && rest <= room + snap) {
      emit(worker, unit, from, tile_of<joins_heads>(i).visible.end, chunk);
      room -= rest;
      chunk = 0;
      give(1);
    }
    // What is left of the place, all other places that fit, and some units of the next.
    const auto give_some = [&] {
      const double each = tile_of<joins_heads>(i).cost;
      const int left = count_at<joins_heads>(i) - given;
      const int fit = room + snap >= each * left ? left : static_cast<int>(std::max(room + snap, 0.0) / each);
      if (fit == 0) return;
      emit_whole<joins_heads>(worker, i, given, fit);
      room -= each * fit;
      give(fit);
    };
    if (joins_heads && chunk == 0 && given > 0) give_some();
    if (i == n) return -room_from(worker, room, cap);
    if (chunk == 0 && given == 0) {
      // Whole places up to j; most likely about as many as before.
      const double most = cost[i] + room + snap;
      size_t j = std::min(n, i + usual);
      while (j > i && cost[j] > most) --j;
      while (j < n && cost[j + 1] <= most) ++j;
      usual = j - i;
      room -= cost[j] - cost[i];
      for (; i < j; ++i) emit_whole<joins_heads>(worker, i, 0, count_at<joins_heads>(i));
      if (i == n) return -room_from(worker, room, cap);
      if (joins_heads) give_some();
    }
    const Tile& tile = tile_of<joins_heads>(i);
    const int begin = chunk == 0 ? tile.visible.begin : from, end = chunk_end(tile, begin, room);
    if (end < 0) continue;
    if (chunk == 0) unit = unit_of<joins_heads>(i, given, 1);
    emit(worker, unit, begin, end, chunk);
    from = end;
    ++chunk;
    rest = tile.overhead + tile.per_token * tile.visible.num_keys(from, tile.visible.end);
  }
  if (chunk == 0) return cost[n] - cost[i] - given * tile_of<joins_heads>(i).cost;
  return rest + cost[n] - cost[i + 1] + (count_at<joins_heads>(i) - given - 1) * tile_of<joins_heads>(i).cost;
}

// Fills the line under the smallest cap that holds it.
void fill_under_smallest_cap(const Problem& p, const PlanBuilder& builder, Line& line) {
  double low = builder.lower_bound;
  for (const double load : builder.load) low = std::max(low, load);
  const double least = std::min(p.traits->thresholds.least_share, line.largest());
  if (least > low && line.fill(least) <= 0) return;
  const double alike = line.cost_of_chunks();
  if (alike <= (1 + p.traits->thresholds.few_chunks) * low && line.fill(alike) <= 0) return;
  // What a worker is likely to lose at its end: a chunk's overhead and half a granule. Near enough, that is the cap.
  const Tile& typical = line.tile_of(builder.on_line.size() / 2);
  const double tolerance = kCapTolerance * builder.lower_bound;
  double high = low + typical.overhead + 0.5 * typical.per_token * p.traits->granule;
  double left = line.fill(high);
  // What a cap leaves over, or leaves empty, says nearly where the right one lies.
  for (double step = tolerance; left > 0; step *= 2) {
    low = high + left / p.num_workers;
    high = low + step;
    left = line.fill(high);
  }
  if (high - low <= kNearEnough * builder.lower_bound) return;
  low = std::max(low, high + left / p.num_workers);
  bool filled = true;  // under `high`
  while (high - low > tolerance) {
    const double middle = low + (high - low) / 2;
    left = line.fill(middle);
    filled = left <= 0;
    (filled ? high : low) = middle;
    low = std::max(low, middle + left / p.num_workers);
  }
  if (!filled) line.fill(high);
}

// Every other worker's tiles of the fewest rows come first, the others' last; else as they were dealt.
void alternate_items(const Problem& p, PlanBuilder& builder) {
  const auto has_few_rows = [&](const PlannedItem& item) {
    return p.traits->classes[builder.tiles[builder.units[item.unit].tile].tile_class].kind ==
           attention::TileKind::direct;
  };
  for (int w = 0; w < p.num_workers; ++w) {
    const auto begin = builder.items.begin() + builder.worker_indptr[w];
    std::stable_partition(begin, builder.items.begin() + builder.worker_indptr[w + 1],
                          [&](const PlannedItem& item) { return has_few_rows(item) == (w % 2 == 1); });
  }
}

}  // namespace

void cut_balanced(const Problem& p, PlanBuilder& builder) {
  const int num_units = static_cast<int>(builder.units.size());
  const bool has_shared_kv = builder.tiles.size() + 1 > builder.tile_indptr.size();  // a run of several tiles
  if (has_shared_kv) {
    deal_tiles(p, builder);
  } else {
    builder.load.assign(static_cast<size_t>(p.num_workers), 0.0);
    builder.pieces.clear();
    builder.piece_worker.clear();
    builder.on_line.resize(static_cast<size_t>(num_units));
    for (int u = 0; u < num_units; ++u) builder.on_line[u] = u;
  }
  const size_t num_dealt = builder.pieces.size();
  if (!builder.on_line.empty()) {
    Line line(p, builder);
    fill_under_smallest_cap(p, builder, line);
    line.finish();
  }
  if (num_dealt > 0) {
    gather_items(p.num_workers, builder);
    const bool is_mixed = (builder.tile_kinds & 1 << static_cast<int>(attention::TileKind::direct)) != 0 &&
                          (builder.tile_kinds & (builder.tile_kinds - 1)) != 0;
    if (is_mixed && p.traits->thresholds.alternates) alternate_items(p, builder);
    return;
  }
  // Without dealt tiles before them the line's chunks are the items: they come in the order of workers.
  builder.items.swap(builder.pieces);
  builder.worker_indptr.resize(static_cast<size_t>(p.num_workers) + 1);
  size_t i = 0;
  for (int w = 0; w <= p.num_workers; ++w) {
    while (i < builder.items.size() && builder.piece_worker[i] < w) ++i;
    builder.worker_indptr[w] = static_cast<int>(i);
  }
}

}  // namespace weft::planner
