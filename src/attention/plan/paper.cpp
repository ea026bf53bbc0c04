// The modes that choose pieces first and deal them afterwards.
//
// paper        Algorithm 1 of FlashInfer (section 3.3.1): one chunk size for all, L = total visible keys / workers,
//              largest chunk first onto the least loaded worker.
// fixed_split  chunks that begin at multiples of n from the request's start. A request's pieces, and so the order of
//              its sums, follow from its own lengths alone; only who computes them depends on the batch.
// no_split     every unit in one piece.
#include <algorithm>
#include <numeric>

#include "attention/plan/plan_builder.h"
#include "attention/plan/worker_heap.h"

namespace weft::planner {
namespace {

// Cuts a unit at origin + k * size inside its visible range.
void add_chunks(PlanBuilder& builder, int u, int64_t origin, int64_t size) {
  PlannedUnit& unit = builder.units[u];
  const Tile& tile = builder.tiles[unit.tile];
  const VisibleRange& visible = tile.visible;
  int begin = visible.begin, chunk = 0;
  do {
    int64_t border = origin + ((begin - origin) / size + 1) * size;
    // No piece lies in the gap alone.
    if (border >= visible.gap_begin && border < visible.gap_end)
      border = origin + (visible.gap_end - origin) / size * size;
    const int end = static_cast<int>(std::min<int64_t>(border, visible.end));
    builder.pieces.push_back({u, begin, end, chunk++});
    builder.piece_cost.push_back(item_cost(tile, begin, end));
    begin = end;
  } while (begin < visible.end);
  unit.num_chunks = chunk;
}

void deal_largest_first(const Problem& p, PlanBuilder& builder) {
  builder.order.resize(builder.pieces.size());
  std::iota(builder.order.begin(), builder.order.end(), 0);
  std::stable_sort(builder.order.begin(), builder.order.end(),
                   [&](int a, int b) { return builder.piece_cost[a] > builder.piece_cost[b]; });
  deal_pieces(p.num_workers, builder);
}

void clear_pieces(PlanBuilder& builder) {
  builder.pieces.clear();
  builder.piece_cost.clear();
}

}  // namespace

void cut_paper(const Problem& p, PlanBuilder& builder) {
  // Line 3, with each unit's keys counted from the granule that they begin in.
  const int64_t granule = p.traits->granule;
  int64_t total = 0;
  for (const PlannedUnit& unit : builder.units) {
    const VisibleRange& visible = builder.tiles[unit.tile].visible;
    total += visible.end - visible.begin / granule * granule;
  }
  const int64_t chunk = std::max(granule, ceil_div(ceil_div(total, p.num_workers), granule) * granule);
  // Line 4.
  clear_pieces(builder);
  for (int u = 0; u < static_cast<int>(builder.units.size()); ++u) {
    const VisibleRange& visible = builder.tiles[builder.units[u].tile].visible;
    add_chunks(builder, u, visible.begin / granule * granule, chunk);
  }
  // Lines 5 to 13.
  deal_largest_first(p, builder);
}

void cut_fixed(const Problem& p, PlanBuilder& builder) {
  clear_pieces(builder);
  for (int u = 0; u < static_cast<int>(builder.units.size()); ++u) add_chunks(builder, u, 0, p.fixed_split_size);
  deal_largest_first(p, builder);
}

void cut_none(const Problem& p, PlanBuilder& builder) {
  clear_pieces(builder);
  for (int u = 0; u < static_cast<int>(builder.units.size()); ++u) add_chunks(builder, u, 0, int64_t{1} << 31);
  deal_largest_first(p, builder);
}

void deal_pieces(int num_workers, PlanBuilder& builder) {
  builder.load.assign(static_cast<size_t>(num_workers), 0.0);
  builder.piece_worker.resize(builder.pieces.size());
  WorkerHeap heap(builder.load);
  std::vector<PlannedItem>& dealt = builder.items;
  dealt.resize(builder.pieces.size());
  for (size_t i = 0; i < builder.order.size(); ++i) {
    const int piece = builder.order[i];
    dealt[i] = builder.pieces[piece];
    builder.piece_worker[i] = heap.give(builder.piece_cost[piece]);
  }
  builder.pieces.swap(dealt);
  gather_items(num_workers, builder);
}

void gather_items(int num_workers, PlanBuilder& builder) {
  std::vector<int>& indptr = builder.worker_indptr;
  indptr.assign(static_cast<size_t>(num_workers) + 1, 0);
  for (const int worker : builder.piece_worker) ++indptr[worker + 1];
  for (int w = 0; w < num_workers; ++w) indptr[w + 1] += indptr[w];
  builder.items.resize(builder.pieces.size());
  // indptr[w] runs to the end of w's items, which is where those of w + 1 begin; then it is set back.
  for (size_t i = 0; i < builder.pieces.size(); ++i)
    builder.items[indptr[builder.piece_worker[i]]++] = builder.pieces[i];
  for (int w = num_workers; w > 0; --w) indptr[w] = indptr[w - 1];
  indptr[0] = 0;
}

}  // namespace weft::planner
