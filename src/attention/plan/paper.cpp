// The modes that choose pieces first and deal them afterwards.
//
// paper        Algorithm 1 of FlashInfer (section 3.3.1): one chunk size for all, L = total visible keys / workers,
//              largest chunk first onto the least loaded worker.
// fixed_split  chunks that begin at multiples of n from the request's start. A request's pieces, and so the order of
//              its sums, follow from its own lengths alone; only who computes them depends on the batch.
// no_split     every unit in one piece.
#include <algorithm>
#include <numeric>

#include "attention/plan/draft.h"
#include "attention/plan/worker_heap.h"

namespace weft::planner {
namespace {

// Cuts a unit at origin + k * size inside its hull.
void add_chunks(Draft& draft, int u, int64_t origin, int64_t size) {
  DraftUnit& unit = draft.units[u];
  const Tile& tile = draft.tiles[unit.tile];
  const Hull& hull = tile.hull;
  int begin = hull.begin, part = 0;
  do {
    int64_t border = origin + ((begin - origin) / size + 1) * size;
    // No piece lies in the gap alone.
    if (border >= hull.gap_begin && border < hull.gap_end) border = origin + (hull.gap_end - origin) / size * size;
    const int end = static_cast<int>(std::min<int64_t>(border, hull.end));
    draft.pieces.push_back({u, begin, end, part++});
    draft.piece_cost.push_back(item_cost(tile, begin, end));
    begin = end;
  } while (begin < hull.end);
  unit.parts = part;
}

void deal_largest_first(const Problem& p, Draft& draft) {
  draft.order.resize(draft.pieces.size());
  std::iota(draft.order.begin(), draft.order.end(), 0);
  std::stable_sort(draft.order.begin(), draft.order.end(),
                   [&](int a, int b) { return draft.piece_cost[a] > draft.piece_cost[b]; });
  deal_pieces(p.num_workers, draft);
}

void clear_pieces(Draft& draft) {
  draft.pieces.clear();
  draft.piece_cost.clear();
}

}  // namespace

void cut_paper(const Problem& p, Draft& draft) {
  // Line 3, with each unit's keys counted from the granule that they begin in.
  const int64_t granule = p.traits->granule;
  int64_t total = 0;
  for (const DraftUnit& unit : draft.units) {
    const Hull& hull = draft.tiles[unit.tile].hull;
    total += hull.end - hull.begin / granule * granule;
  }
  const int64_t chunk = std::max(granule, ceil_div(ceil_div(total, p.num_workers), granule) * granule);
  // Line 4.
  clear_pieces(draft);
  for (int u = 0; u < static_cast<int>(draft.units.size()); ++u) {
    const Hull& hull = draft.tiles[draft.units[u].tile].hull;
    add_chunks(draft, u, hull.begin / granule * granule, chunk);
  }
  // Lines 5 to 13.
  deal_largest_first(p, draft);
}

void cut_fixed(const Problem& p, Draft& draft) {
  clear_pieces(draft);
  for (int u = 0; u < static_cast<int>(draft.units.size()); ++u) add_chunks(draft, u, 0, p.fixed_split_size);
  deal_largest_first(p, draft);
}

void cut_none(const Problem& p, Draft& draft) {
  clear_pieces(draft);
  for (int u = 0; u < static_cast<int>(draft.units.size()); ++u) add_chunks(draft, u, 0, int64_t{1} << 31);
  deal_largest_first(p, draft);
}

void deal_pieces(int num_workers, Draft& draft) {
  draft.load.assign(static_cast<size_t>(num_workers), 0.0);
  draft.piece_worker.resize(draft.pieces.size());
  WorkerHeap heap(draft.load);
  std::vector<DraftItem>& dealt = draft.items;
  dealt.resize(draft.pieces.size());
  for (size_t i = 0; i < draft.order.size(); ++i) {
    const int piece = draft.order[i];
    dealt[i] = draft.pieces[piece];
    draft.piece_worker[i] = heap.give(draft.piece_cost[piece]);
  }
  draft.pieces.swap(dealt);
  gather_items(num_workers, draft);
}

void gather_items(int num_workers, Draft& draft) {
  std::vector<int>& indptr = draft.worker_indptr;
  indptr.assign(static_cast<size_t>(num_workers) + 1, 0);
  for (const int worker : draft.piece_worker) ++indptr[worker + 1];
  for (int w = 0; w < num_workers; ++w) indptr[w + 1] += indptr[w];
  draft.items.resize(draft.pieces.size());
  // indptr[w] runs to the end of w's items, which is where those of w + 1 begin; then it is set back.
  for (size_t i = 0; i < draft.pieces.size(); ++i) draft.items[indptr[draft.piece_worker[i]]++] = draft.pieces[i];
  for (int w = num_workers; w > 0; --w) indptr[w] = indptr[w - 1];
  indptr[0] = 0;
}

}  // namespace weft::planner
