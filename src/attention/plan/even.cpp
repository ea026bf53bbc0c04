// even: the closed form of attention/even.h. A little less level than balanced where a worker has few granules, but
// whoever knows the lengths makes the same plan, a kernel too.
#include "attention/even.h"

#include <algorithm>
#include <cmath>

#include "attention/plan/plan_builder.h"
#include "base/check.h"

namespace weft::planner {

using namespace attention;

void check_even(const Problem& p, const PlanBuilder& builder) {
  check(p.plain, ErrorCode::unsupported,
        "mode even: required levels or block lists; supported is one page list a request; missing: the others; use "
        "PlanMode::balanced");
  if (p.num_requests == 0) return;
  for (int r = 0; r < p.num_requests; ++r)
    check(p.qo_len(r) == p.qo_len(0), ErrorCode::invalid_argument,
          "qo_indptr: request {} has {} query tokens, request 0 has {}; mode even takes requests of as many; use "
          "PlanMode::balanced",
          r, p.qo_len(r), p.qo_len(0));
  check(builder.tiles.size() <= static_cast<size_t>(p.num_requests), ErrorCode::invalid_argument,
        "qo_indptr: requests of {} query tokens need several tiles; mode even takes requests of one; use "
        "PlanMode::balanced",
        p.qo_len(0));
}

int even_overhead(const KernelTraits& traits, int tile_class, int rows) {
  const TileClass& c = traits.classes[static_cast<size_t>(tile_class)];
  const double granule = (c.token + c.row_token * rows) * traits.granule;
  return granule > 0 ? static_cast<int>(std::min(std::round((c.row * rows + c.item) / granule), 1e6)) : 0;
}

void cut_even(const Problem& p, PlanBuilder& builder) {
  check_even(p, builder);
  static thread_local std::vector<long long> before;
  const int num_units = static_cast<int>(builder.units.size());
  EvenLine line{.before = nullptr,
                .num_requests = static_cast<int>(builder.tiles.size()),
                .units_per_request = builder.tiles.empty() ? 1 : num_units / static_cast<int>(builder.tiles.size()),
                .num_workers = p.num_workers,
                .granule = p.traits->granule,
                .overhead = 0};
  if (num_units > 0) line.overhead = even_overhead(*p.traits, builder.tiles[0].tile_class, p.qo_len(0) * p.group);
  before.assign(1, 0);
  for (const Tile& tile : builder.tiles)
    before.push_back(before.back() + line.overhead + even_granules(tile.visible.begin, tile.visible.end, line.granule));
  line.before = before.data();

  builder.items.clear();
  builder.worker_indptr.assign(1, 0);
  EvenBorder from = {0, 0};
  for (int worker = 0; worker < p.num_workers; ++worker) {
    const EvenBorder to = even_border(line, worker + 1);
    for (int u = from.unit; u < to.unit || (u == to.unit && to.granules > 0 && !(from == to)); ++u) {
      PlannedUnit& unit = builder.units[u];
      const VisibleRange& visible = builder.tiles[unit.tile].visible;
      const auto cut = [&](const EvenBorder& at) { return even_cut(visible.begin, at.granules, line.granule); };
      const int begin = u == from.unit && from.granules > 0 ? cut(from) : visible.begin;
      builder.items.push_back({u, begin, u == to.unit ? cut(to) : visible.end, unit.num_chunks++});
    }
    from = to;
    builder.worker_indptr.push_back(static_cast<int>(builder.items.size()));
  }
}

}  // namespace weft::planner
