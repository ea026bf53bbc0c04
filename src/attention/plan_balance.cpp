// balanced: every unit on one line, and the line cut where each worker's share ends.
//
// A worker's share is what fits under a cap of cost: whole units first, then a part of the next one that ends on a
// granule. The cap is the smallest for which the last worker's share reaches the end of the line, found by bisection
// between the lower bound and a cap that always suffices. Each worker starts where the one before it stopped, so it
// shares at most two units with others.
//
// Requests with several query tiles are dealt first, tile by tile in unit order to the least loaded worker: tiles that
// read the same K and V then run at the same time on different workers. What no longer fits under the average load
// stays on the line and levels the workers' loads.
#include <algorithm>
#include <utility>

#include "attention/plan_draft.h"
#include "attention/worker_heap.h"

namespace weft::planner {
namespace {

// Dealing alone is good enough when no worker carries more than this over the lower bound: nothing is cut at all.
constexpr double kLevelEnough = 1.02;
// A unit that exceeds the room by less than this share of the cap is not cut: a sliver costs more than it levels.
constexpr double kSnap = 1.0 / 128;
// The bisection stops when the cap is known to this share of the lower bound.
constexpr double kCapTolerance = 1.0 / 256;

class Line {
 public:
  Line(const Problem& problem, Draft& draft)
      : draft_(draft), granule_(problem.traits->granule), num_workers_(problem.num_workers) {}

  // Whether the line's units fit on all workers under the cap, beside what they carry already.
  bool fits(double cap) { return fill<false>(cap); }
  // Writes the items; the last worker takes what remains.
  void cut(double cap) { fill<true>(cap); }

 private:
  template <bool kEmit>
  bool fill(double cap);
  void emit(int worker, int unit, int begin, int end, int part) {
    draft_.pieces.push_back({unit, begin, end, part});
    draft_.piece_worker.push_back(worker);
    draft_.units[unit].parts = part + 1;
  }

  Draft& draft_;
  const int granule_;
  const int num_workers_;
};

template <bool kEmit>
bool Line::fill(double cap) {
  const std::vector<int>& line = draft_.on_line;
  const DraftUnit* units = draft_.units.data();
  const Tile* tiles = draft_.tiles.data();
  const size_t n = line.size();
  const double snap = cap * kSnap;
  size_t i = 0;
  int from = -1, part = 0;  // where the current unit goes on; -1: at its begin
  for (int worker = 0; worker < num_workers_ && i < n; ++worker) {
    const bool last = worker == num_workers_ - 1;
    double room = cap - draft_.load[worker];
    while (i < n) {
      const int u = line[i];
      const DraftUnit& unit = units[u];
      const Hull& hull = tiles[unit.tile].hull;
      const double rest = from < 0 ? unit.cost : unit.overhead + unit.per_token * hull.visible(from, hull.end);
      if (rest <= room + snap || (kEmit && last)) {
        if constexpr (kEmit) emit(worker, u, from < 0 ? hull.begin : from, hull.end, part);
        room -= rest;
        ++i;
        from = -1;
        part = 0;
        continue;
      }
      // The most tokens that fit, to a granule's border.
      const int begin = from < 0 ? hull.begin : from;
      const double tokens = (room - unit.overhead) / unit.per_token;
      if (tokens < 1) break;
      int64_t to = begin + static_cast<int64_t>(tokens);
      if (to > hull.gap_begin && hull.gap_end > hull.gap_begin)
        to += hull.gap_end - std::clamp(begin, hull.gap_begin, hull.gap_end);
      to -= to % granule_;
      if (to <= begin || to >= hull.end || 2 * hull.visible(begin, static_cast<int>(to)) < granule_) break;
      if constexpr (kEmit) emit(worker, u, begin, static_cast<int>(to), part);
      from = static_cast<int>(to);
      ++part;
      break;
    }
  }
  return i == n;
}

// Deals the units of requests with several tiles; the others, and what is above the cap, go on the line.
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
    const bool shares_kv = draft.tile_indptr[tile.request + 1] - draft.tile_indptr[tile.request] > 1;
    unit.parts = 0;
    if (!shares_kv || heap.least_load() + unit.cost > cap) {
      draft.on_line.push_back(u);
      continue;
    }
    unit.parts = 1;
    draft.pieces.push_back({u, tile.hull.begin, tile.hull.end, 0});
    draft.piece_worker.push_back(heap.give(unit.cost));
  }
}

double smallest_cap(const Draft& draft, Line& line) {
  double low = draft.lower_bound;
  for (const double load : draft.load) low = std::max(low, load);
  // In growing steps: with many granules a worker the first ones fit.
  double width = low * kCapTolerance, high = low;
  while (!line.fits(high)) {
    low = high;
    high += width;
    width *= 2;
  }
  while (high - low > 1.5 * draft.lower_bound * kCapTolerance) {
    const double middle = low + (high - low) / 2;
    (line.fits(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

void cut_balanced(const Problem& p, Draft& draft) {
  const size_t num_units = draft.units.size();
  const bool has_shared_kv = static_cast<int>(draft.tiles.size()) > p.num_requests ||
                             std::adjacent_find(draft.tile_indptr.begin(), draft.tile_indptr.end(),
                                                [](int a, int b) { return b - a > 1; }) != draft.tile_indptr.end();
  if (has_shared_kv) {
    const double enough = kLevelEnough * draft.lower_bound;
    deal_tiles(p, enough, draft);
    if (!draft.on_line.empty()) {
      double total = 0;
      for (const DraftUnit& unit : draft.units) total += unit.cost;
      deal_tiles(p, total / p.num_workers, draft);
    }
  } else {
    draft.load.assign(static_cast<size_t>(p.num_workers), 0.0);
    draft.pieces.clear();
    draft.piece_worker.clear();
    draft.on_line.resize(num_units);
    for (size_t u = 0; u < num_units; ++u) draft.on_line[u] = static_cast<int>(u);
  }
  if (!draft.on_line.empty()) {
    Line line(p, draft);
    line.cut(smallest_cap(draft, line));
  }
  gather_items(p.num_workers, draft);
}

}  // namespace weft::planner
