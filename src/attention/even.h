// The closed form of PlanMode::even, for planner and kernels: which pieces of which units each worker has, in integers.
//
// A unit costs its granules of keys, and `overhead` granules more. All units, request after request and within each the
// ranges of KV heads, lie on a line of that cost; worker w's share is [w * share, (w + 1) * share) of it. Where a share
// begins among a unit's granules, the unit is cut. A unit without keys has one granule.
#pragma once

#include "attention/abi.h"

namespace weft::attention {

// What the line is made of. `before[r]`: cost of one unit of each of the requests before r, [num_requests + 1].
struct EvenLine {
  const long long* before;
  int num_requests, units_per_request, num_workers;
  int granule, overhead;

  constexpr int num_units() const { return num_requests * units_per_request; }
  constexpr long long share() const {
    const long long cost = before[num_requests] * units_per_request;
    return (cost + num_workers - 1) / num_workers;
  }
};

// A batch whose lengths and pages lie on a device; a kernel makes its plan.
struct EvenBatch {
  const int* kv_len;                 // [requests]
  const int* page_table;             // [requests, pages_of_request]
  long long page_table_stride;       // from request to request
  int pages_of_request, max_kv_len;  // lengths beyond are clamped
  int qo_len;                        // of each request
  int granule, overhead;             // as in EvenLine
  TileKind tile_kind;
};

// Granules of the keys [begin, end).
inline constexpr int even_granules(int begin, int end, int granule) {
  const int n = (end + granule - 1) / granule - begin / granule;
  return n > 1 ? n : 1;
}

// Where a worker's share begins: `granules` of the unit belong to shares before.
struct EvenBorder {
  int unit, granules;
  friend constexpr bool operator==(const EvenBorder& a, const EvenBorder& b) {
    return a.unit == b.unit && a.granules == b.granules;
  }
};
inline constexpr EvenBorder even_border(const EvenLine& line, int worker) {
  const long long at = worker * line.share();
  int low = 0,
      high = line.num_requests;  // the last request that begins at or before `at`; behind all of them, their number
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (line.before[middle] * line.units_per_request <= at)
      low = middle;
    else
      high = middle - 1;
  }
  if (low == line.num_requests) return {line.num_units(), 0};
  const long long cost = line.before[low + 1] - line.before[low],
                  inside = at - line.before[low] * line.units_per_request;
  const int unit = static_cast<int>(inside / cost), granules = static_cast<int>(inside % cost) - line.overhead;
  return {low * line.units_per_request + unit, granules > 0 ? granules : 0};
}

// The token at which a unit whose keys begin at `begin` is cut behind so many granules.
inline constexpr int even_cut(int begin, int granules, int granule) { return (begin / granule + granules) * granule; }

}  // namespace weft::attention
