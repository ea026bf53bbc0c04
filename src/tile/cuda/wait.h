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

// The same for who looks often: the clock is read at every 64th look.
//
//   for (Patience patience(limit_ns); !is_so();)
//     if (patience.is_over()) return report(phase);
class Patience {
 public:
  WEFT_INLINE explicit Patience(u64 limit_ns) : limit_ns_(limit_ns) {}
  // Once for each look in vain.
  WEFT_INLINE bool is_over() {
    if (limit_ns_ == 0 || ++looks_ % 64 != 0) return false;
    const u64 now = ptx::global_ns();
    if (looks_ == 64) start_ = now;
    return now - start_ > limit_ns_;
  }

 private:
  const u64 limit_ns_;
  u64 start_ = 0;
  u32 looks_ = 0;
};

}  // namespace weft::tile
