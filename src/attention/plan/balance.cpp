// balanced: every unit on one line, and the line cut where each worker's share ends.
//
// A worker's share is what fits under a cap of cost: whole units first, then a part of the next one that ends on a
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

#include "attention/plan/draft.h"
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
  // Its parts go behind what draft.pieces holds.
  Line(const Problem& problem, Draft& draft)
      : draft_(draft),
        granule_(problem.traits->granule),
        num_workers_(problem.num_workers),
        first_piece_(draft.pieces.size()) {
    const size_t most = first_piece_ + draft.on_line.size() + static_cast<size_t>(num_workers_);
    draft.pieces.resize(most);
    draft.piece_worker.resize(most);
    sum_costs();
  }

  // Another order of the line.
  void set_order(const std::vector<int>& units) {
    draft_.on_line = units;
    sum_costs();
  }
  // Deals units and their parts to workers, beside what they carry already. Returns the cost that does not fit.
  double fill(double cap);
  // The parts of the last fill, all of which fitted.
  void finish() {
    draft_.pieces.resize(num_pieces_);
    draft_.piece_worker.resize(num_pieces_);
  }

 private:
  void emit(int worker, int unit, int begin, int end, int part) {
    draft_.pieces[num_pieces_] = {unit, begin, end, part};
    draft_.piece_worker[num_pieces_++] = worker;
    draft_.units[unit].parts = part + 1;
  }
  // Where a part of the unit from `begin` on ends that costs at most `room`; -1 when none is worth it.
  int part_end(const Tile& tile, int begin, double room) const;
  void sum_costs() {
    draft_.line_cost.resize(draft_.on_line.size() + 1);
    double sum = 0;
    for (size_t i = 0; i < draft_.on_line.size(); ++i) {
      draft_.line_cost[i] = sum;
      sum += tile_of(i).cost;
    }
    draft_.line_cost.back() = sum;
  }
  const Tile& tile_of(size_t place) const { return draft_.tiles[draft_.units[draft_.on_line[place]].tile]; }

  Draft& draft_;
  const Granule granule_;
  const int num_workers_;
  const size_t first_piece_;
  size_t num_pieces_ = 0;
};

int Line::part_end(const Tile& tile, int begin, double room) const {
  const Hull& hull = tile.hull;
  const double tokens = (room - tile.overhead) / tile.per_token;
  if (tokens < 1) return -1;
  int to = begin + static_cast<int>(tokens);
  if (to > hull.gap_begin && hull.gap_end > hull.gap_begin)
    to += hull.gap_end - std::clamp(begin, hull.gap_begin, hull.gap_end);
  to = granule_.floor(to) * granule_.size();
  return to > begin && to < hull.end && 2 * hull.visible(begin, to) >= granule_.size() ? to : -1;
}

double Line::fill(double cap) {
  const int* line = draft_.on_line.data();
  const double* cost = draft_.line_cost.data();
  const size_t n = draft_.on_line.size();
  const double snap = cap * kSnap;
  size_t i = 0, usual = 0;  // usual: how many whole units the worker before took
  int from = 0, part = 0;   // of the current unit, once some of it is given away
  double rest = 0;          // cost of what is left of it
  num_pieces_ = first_piece_;
  for (int worker = 0; worker < num_workers_; ++worker) {
    double room = cap - draft_.load[worker];
    if (part > 0 && rest <= room + snap) {
      emit(worker, line[i], from, tile_of(i).hull.end, part);
      room -= rest;
      part = 0;
      if (++i == n) return 0;
    }
    if (part == 0) {
      // Whole units up to j; most likely about as many as before.
      const double most = cost[i] + room + snap;
      size_t j = std::min(n, i + usual);
      while (j > i && cost[j] > most) --j;
      while (j < n && cost[j + 1] <= most) ++j;
      usual = j - i;
      room -= cost[j] - cost[i];
      for (; i < j; ++i) emit(worker, line[i], tile_of(i).hull.begin, tile_of(i).hull.end, 0);
      if (i == n) return 0;
    }
    const Tile& tile = tile_of(i);
    const int begin = part == 0 ? tile.hull.begin : from, end = part_end(tile, begin, room);
    if (end < 0) continue;
    emit(worker, line[i], begin, end, part);
    from = end;
    ++part;
    rest = tile.overhead + tile.per_token * tile.hull.visible(from, tile.hull.end);
  }
  return part == 0 ? cost[n] - cost[i] : rest + cost[n] - cost[i + 1];
}

// Deals the units of entries with several tiles; the others, and what is above the cap, go on the line.
void deal_tiles(const Problem& p, double cap, Draft& draft) {
  draft.load.assign(static_cast<size_t>(p.num_workers), 0.0);
  draft.pieces.clear();
  draft.piece_worker.clear();
  draft.on_line.clear();
  WorkerHeap heap(draft.load);
  const int num_units = static_cast<int>(draft.units.size());
  for (int u = 0; u < num_units; ++u) {
    DraftUnit& unit = draft.units[u];
    const Tile& tile = draft.tiles[unit.tile];
    const bool shares_kv = draft.tile_indptr[tile.run + 1] - draft.tile_indptr[tile.run] > 1;
    unit.parts = 0;
    if (!shares_kv || heap.least_load() + tile.cost > cap) {
      draft.on_line.push_back(u);
      continue;
    }
    unit.parts = 1;
    draft.pieces.push_back({u, tile.hull.begin, tile.hull.end, 0});
    draft.piece_worker.push_back(heap.give(tile.cost));
  }
}

// Fills the line under the smallest cap that holds it; returns the cap.
double fill_under_smallest_cap(const Problem& p, const Draft& draft, Line& line) {
  double low = draft.lower_bound;
  for (const double load : draft.load) low = std::max(low, load);
  // What a worker is likely to lose at its end: a part's overhead and half a granule. Near enough, that is the cap.
  const Tile& typical = draft.tiles[draft.units[draft.on_line[draft.on_line.size() / 2]].tile];
  double width = typical.overhead + 0.5 * typical.per_token * p.traits->granule, high = low + width;
  for (double left; (left = line.fill(high)) > 0; width *= 2) {
    low = high + left / p.num_workers;
    high = low + width;
  }
  if (high - low <= kNearEnough * draft.lower_bound) return high;
  bool filled = true;  // under `high`
  while (high - low > kCapTolerance * draft.lower_bound) {
    const double middle = low + (high - low) / 2, left = line.fill(middle);
    filled = left <= 0;
    if (filled)
      high = middle;
    else
      low = middle + left / p.num_workers;
  }
  if (!filled) line.fill(high);
  return high;
}

// Fills the line in the best of several orders. With few granules a worker it decides where cuts fall: from the other
// end, and with long units first or last, they fall elsewhere.
void fill_in_best_order(const Problem& p, Draft& draft, Line& line) {
  double cap = fill_under_smallest_cap(p, draft, line);
  const double enough = p.traits->thresholds.worth_another_order * draft.lower_bound;
  if (cap <= enough) return;
  std::vector<int> best = draft.on_line, order = best;
  const auto attempt = [&] {
    if (cap <= enough) return;
    line.set_order(order);
    const double other = fill_under_smallest_cap(p, draft, line);
    if (other >= cap) return;
    cap = other;
    best = order;
  };
  std::reverse(order.begin(), order.end());
  attempt();
  const auto cost = [&](int unit) { return draft.tiles[draft.units[unit].tile].cost; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return cost(a) > cost(b); });
  attempt();
  std::reverse(order.begin(), order.end());
  attempt();
  line.set_order(best);
  line.fill(cap);
}

}  // namespace

void cut_balanced(const Problem& p, Draft& draft) {
  const int num_units = static_cast<int>(draft.units.size());
  const bool has_shared_kv = draft.tiles.size() + 1 > draft.tile_indptr.size();  // a run of several tiles
  if (has_shared_kv) {
    deal_tiles(p, p.traits->thresholds.level_enough * draft.lower_bound, draft);
    if (!draft.on_line.empty()) {
      double total = 0;
      for (const DraftUnit& unit : draft.units) total += draft.tiles[unit.tile].cost;
      deal_tiles(p, total / p.num_workers, draft);
    }
  } else {
    draft.load.assign(static_cast<size_t>(p.num_workers), 0.0);
    draft.pieces.clear();
    draft.piece_worker.clear();
    draft.on_line.resize(static_cast<size_t>(num_units));
    for (int u = 0; u < num_units; ++u) draft.on_line[u] = u;
  }
  const size_t num_dealt = draft.pieces.size();
  if (!draft.on_line.empty()) {
    Line line(p, draft);
    fill_in_best_order(p, draft, line);
    line.finish();
  }
  if (num_dealt > 0) {
    gather_items(p.num_workers, draft);
    return;
  }
  // Without dealt tiles before them the line's parts are the items: they come in the order of workers.
  draft.items.swap(draft.pieces);
  draft.worker_indptr.resize(static_cast<size_t>(p.num_workers) + 1);
  size_t i = 0;
  for (int w = 0; w <= p.num_workers; ++w) {
    while (i < draft.items.size() && draft.piece_worker[i] < w) ++i;
    draft.worker_indptr[w] = static_cast<int>(i);
  }
}

}  // namespace weft::planner
