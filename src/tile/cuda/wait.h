// Waits that give up, so that a launch whose partner never comes ends and says where.
//
//   if (!wait_until([&] { return ptx::load_acquire(arrived) >= n; }, args.limit_ns)) return report(phase);
#pragma once

#include "tile/cuda/ptx/clock.h"

namespace weft::tile {

// Until is_so(); false once `limit_ns` have gone by. 0: waits forever.
template <class Condition>
WEFT_INLINE bool wait_until(const Condition& is_so, u64 limit_ns) {
  if (is_so()) return true;
  const u64 start = limit_ns != 0 ? ptx::global_ns() : 0;
  while (!is_so())
    if (limit_ns != 0 && ptx::global_ns() - start > limit_ns) return false;
  return true;
}

}  // namespace weft::tile
