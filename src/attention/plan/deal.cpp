// balanced's deal of entries with several query tiles: unit by unit to the least loaded worker, so that tiles that read
// the same K and V run at the same time on different workers. Backends to which a cut costs more than reading them
// again have the costliest of many tiles first: what comes last levels the workers.
#include <algorithm>
#include <numeric>
#include <utility>

#include "attention/plan/plan_builder.h"
#include "attention/plan/worker_heap.h"

namespace weft::planner {
namespace {

// Of each window of units the costliest first, in builder.order.
void order_units(const Problem& p, PlanBuilder& builder) {
  std::vector<int>& order = builder.order;
  order.resize(builder.units.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t window = size_t{1} * p.traits->thresholds.dealt_at_once * p.num_workers;
  if (window == 0) return;
  const auto cost = [&](int unit) { return builder.tiles[builder.units[unit].tile].cost; };
  for (size_t begin = 0; begin < order.size(); begin += window)
    std::sort(order.begin() + begin, order.begin() + std::min(begin + window, order.size()),
              [&](int a, int b) { return std::pair(-cost(a), a) < std::pair(-cost(b), b); });
}

// Deals the units of entries with several tiles, or all; the others, and what is above the cap, go on the line.
void deal_under(const Problem& p, double cap, bool all, PlanBuilder& builder) {
  builder.load.assign(static_cast<size_t>(p.num_workers), 0.0);
  builder.pieces.resize(builder.units.size());
  builder.piece_worker.resize(builder.units.size());
  builder.on_line.clear();
  size_t num_pieces = 0;
  const int* const tile_indptr = builder.tile_indptr.data();
  WorkerHeap heap(builder.load);
  for (const int u : builder.order) {
    PlannedUnit& unit = builder.units[u];
    const Tile& tile = builder.tiles[unit.tile];
    const bool shares_kv = tile_indptr[tile.run + 1] - tile_indptr[tile.run] > 1;
    unit.num_chunks = 0;
    if ((!shares_kv && !all) || heap.least_load() + tile.cost > cap) {
      builder.on_line.push_back(u);
      continue;
    }
    unit.num_chunks = 1;
    builder.pieces[num_pieces] = {u, tile.visible.begin, tile.visible.end, 0};
    builder.piece_worker[num_pieces++] = heap.give(tile.cost);
  }
  builder.pieces.resize(num_pieces);
  builder.piece_worker.resize(num_pieces);
}

}  // namespace

void deal_tiles(const Problem& p, PlanBuilder& builder) {
  const PlanThresholds& enough = p.traits->thresholds;
  order_units(p, builder);
  const double cap = std::max(enough.level_enough * builder.lower_bound, builder.lower_bound + enough.cut);
  deal_under(p, cap, enough.dealt_at_once > 0, builder);
  if (builder.on_line.empty()) return;
  double total = 0;
  for (const PlannedUnit& unit : builder.units) total += builder.tiles[unit.tile].cost;
  deal_under(p, total / p.num_workers, false, builder);
}

}  // namespace weft::planner
