// balanced: every unit on one line, and the line cut where each worker's share ends.
//
// A worker's share is what fits under a cap of cost: whole units first, then a chunk of the next one that ends on a
// granule. The cap is the smallest for which the last worker's share reaches the end of the line: what a cap leaves over,
// dealt to all workers, says how far to raise it, and bisection does the rest. Each worker starts where the one before it
// stopped, so it shares at most two units with others.
//
// Entries with several query tiles are dealt first, tile by tile in unit order to the least loaded worker: tiles that
// read the same K and V then run at the same time on different workers. What no longer fits under the average load
// stays on the line and levels the workers' loads.
#include <algorithm>
#include <limits>
#include <utility>

#include "attention/plan/plan_builder.h"
#include "attention/plan/worker_heap.h"

namespace weft::planner {
namespace {

// A unit that exceeds the room by less than this share of the cap is not cut: a sliver costs more than it levels.
constexpr double kSnap = 1.0 / 256;
// The bisection stops when the cap is known to this share of the lower bound.
constexpr double kCapTolerance = 1.0 / 512;
// A cap this near to the lower bound needs no bisection: each step is another pass over the line.
constexpr double kNearEnough = 1.0 / 64;

class Line {
 public:
  // Its chunks go behind what builder.pieces holds.
  Line(const Problem& problem, PlanBuilder& builder)
      : builder_(builder),
        granule_(problem.traits->granule),
        num_workers_(problem.num_workers),
        first_piece_(builder.pieces.size()) {
    const size_t most = first_piece_ + builder.on_line.size() + static_cast<size_t>(num_workers_);
    builder.pieces.resize(most);
    builder.piece_worker.resize(most);
    sum_costs();
  }

  // Deals units and their chunks to workers, beside what they carry already. Returns the cost that does not fit.
  double fill(double cap);
  // The chunks of the last fill, all of which fitted.
  void finish() {
    builder_.pieces.resize(num_pieces_);
    builder_.piece_worker.resize(num_pieces_);
  }

 private:
  void emit(int worker, int unit, int begin, int end, int chunk) {
    builder_.pieces[num_pieces_] = {unit, begin, end, chunk};
    builder_.piece_worker[num_pieces_++] = worker;
    builder_.units[unit].num_chunks = chunk + 1;
  }
  // Where a chunk of the unit from `begin` on ends that costs at most `room`; -1 when none is worth it.
  int chunk_end(const Tile& tile, int begin, double room) const;
  void sum_costs() {
    builder_.line_cost.resize(builder_.on_line.size() + 1);
    double sum = 0;
    for (size_t i = 0; i < builder_.on_line.size(); ++i) {
      builder_.line_cost[i] = sum;
      sum += tile_of(i).cost;
    }
    builder_.line_cost.back() = sum;
  }
  const Tile& tile_of(size_t place) const { return builder_.tiles[builder_.units[builder_.on_line[place]].tile]; }

  PlanBuilder& builder_;
  const Granule granule_;
  const int num_workers_;
  const size_t first_piece_;
  size_t num_pieces_ = 0;
};

int Line::chunk_end(const Tile& tile, int begin, double room) const {
  const VisibleRange& visible = tile.visible;
  const double tokens = (room - tile.overhead) / tile.per_token;
  if (tokens < 1) return -1;
  int to = begin + static_cast<int>(tokens);
  if (to > visible.gap_begin && visible.gap_end > visible.gap_begin)
    to += visible.gap_end - std::clamp(begin, visible.gap_begin, visible.gap_end);
  to = granule_.floor(to) * granule_.size();
  return to > begin && to < visible.end && 2 * visible.num_keys(begin, to) >= granule_.size() ? to : -1;
}

double Line::fill(double cap) {
  const int* line = builder_.on_line.data();
  const double* cost = builder_.line_cost.data();
  const size_t n = builder_.on_line.size();
  const double snap = cap * kSnap;
  size_t i = 0, usual = 0;  // usual: how many whole units the worker before took
  int from = 0, chunk = 0;  // of the current unit, once some of it is given away
  double rest = 0;          // cost of what is left of it
  num_pieces_ = first_piece_;
  for (int worker = 0; worker < num_workers_; ++worker) {
    double room = cap - builder_.load[worker];
    if (chunk > 0 && rest <= room + snap) {
      emit(worker, line[i], from, tile_of(i).visible.end, chunk);
      room -= rest;
      chunk = 0;
      if (++i == n) return 0;
    }
    if (chunk == 0) {
      // Whole units up to j; most likely about as many as before.
      const double most = cost[i] + room + snap;
      size_t j = std::min(n, i + usual);
      while (j > i && cost[j] > most) --j;
      while (j < n && cost[j + 1] <= most) ++j;
      usual = j - i;
      room -= cost[j] - cost[i];
      for (; i < j; ++i) emit(worker, line[i], tile_of(i).visible.begin, tile_of(i).visible.end, 0);
      if (i == n) return 0;
    }
    const Tile& tile = tile_of(i);
    const int begin = chunk == 0 ? tile.visible.begin : from, end = chunk_end(tile, begin, room);
    if (end < 0) continue;
    emit(worker, line[i], begin, end, chunk);
    from = end;
    ++chunk;
    rest = tile.overhead + tile.per_token * tile.visible.num_keys(from, tile.visible.end);
  }
  return chunk == 0 ? cost[n] - cost[i] : rest + cost[n] - cost[i + 1];
}

// Deals the units of entries with several tiles; the others, and what is above the cap, go on the line.
void deal_tiles(const Problem& p, double cap, PlanBuilder& builder) {
  builder.load.assign(static_cast<size_t>(p.num_workers), 0.0);
  builder.pieces.clear();
  builder.piece_worker.clear();
  builder.on_line.clear();
  WorkerHeap heap(builder.load);
  const int num_units = static_cast<int>(builder.units.size());
  for (int u = 0; u < num_units; ++u) {
    PlannedUnit& unit = builder.units[u];
    const Tile& tile = builder.tiles[unit.tile];
    const bool shares_kv = builder.tile_indptr[tile.run + 1] - builder.tile_indptr[tile.run] > 1;
    unit.num_chunks = 0;
    if (!shares_kv || heap.least_load() + tile.cost > cap) {
      builder.on_line.push_back(u);
      continue;
    }
    unit.num_chunks = 1;
    builder.pieces.push_back({u, tile.visible.begin, tile.visible.end, 0});
    builder.piece_worker.push_back(heap.give(tile.cost));
  }
}

double largest_on_line(const PlanBuilder& builder) {
  double largest = 0;
  for (const int unit : builder.on_line) largest = std::max(largest, builder.tiles[builder.units[unit].tile].cost);
  return largest;
}

// Fills the line under the smallest cap that holds it.
void fill_under_smallest_cap(const Problem& p, const PlanBuilder& builder, Line& line) {
  double low = builder.lower_bound;
  for (const double load : builder.load) low = std::max(low, load);
  const double least = std::min(p.traits->thresholds.least_share, largest_on_line(builder));
  if (least > low && line.fill(least) <= 0) return;
  // What a worker is likely to lose at its end: a chunk's overhead and half a granule. Near enough, that is the cap.
  const Tile& typical = builder.tiles[builder.units[builder.on_line[builder.on_line.size() / 2]].tile];
  double width = typical.overhead + 0.5 * typical.per_token * p.traits->granule, high = low + width;
  for (double left; (left = line.fill(high)) > 0; width *= 2) {
    low = high + left / p.num_workers;
    high = low + width;
  }
  if (high - low <= kNearEnough * builder.lower_bound) return;
  bool filled = true;  // under `high`
  while (high - low > kCapTolerance * builder.lower_bound) {
    const double middle = low + (high - low) / 2, left = line.fill(middle);
    filled = left <= 0;
    if (filled)
      high = middle;
    else
      low = middle + left / p.num_workers;
  }
  if (!filled) line.fill(high);
}

}  // namespace

void cut_balanced(const Problem& p, PlanBuilder& builder) {
  const int num_units = static_cast<int>(builder.units.size());
  const bool has_shared_kv = builder.tiles.size() + 1 > builder.tile_indptr.size();  // a run of several tiles
  if (has_shared_kv) {
    const PlanThresholds& enough = p.traits->thresholds;
    deal_tiles(p, std::max(enough.level_enough * builder.lower_bound, builder.lower_bound + enough.cut), builder);
    if (!builder.on_line.empty()) {
      double total = 0;
      for (const PlannedUnit& unit : builder.units) total += builder.tiles[unit.tile].cost;
      deal_tiles(p, total / p.num_workers, builder);
    }
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
