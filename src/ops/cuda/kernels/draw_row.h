// What the kernel of draws is made of: the CTAs of a row, which are a cluster, and sums over warps and CTAs.
#pragma once

#include "ops/cuda/kernels/args.h"
#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/cluster.h"
#include "tile/cuda/ptx/math.h"
#include "tile/cuda/ptx/shuffle.h"
#include "tile/cuda/ptx/thread.h"
#include "tile/draw.h"

namespace weft::ops {

inline constexpr int kDrawThreads = 32 * kDrawWarps;

#if WEFT_SM >= 90
WEFT_INLINE int row_rank() { return ptx::cluster_rank(); }
WEFT_INLINE int row_ctas() { return ptx::cluster_size(); }
WEFT_INLINE void row_sync() { ptx::cluster_sync(); }
template <class T>
WEFT_INLINE const T* row_shared(T* own, int rank) {
  return ptx::cluster_shared(own, rank);
}
#else
WEFT_INLINE int row_rank() { return 0; }
WEFT_INLINE int row_ctas() { return 1; }
WEFT_INLINE void row_sync() { ptx::cta_sync(); }
template <class T>
WEFT_INLINE const T* row_shared(T* own, int) {
  return own;
}
#endif

// The operations of tile/draw.h on one number.
struct CardMath {
  using Real = float;
  using Int = int;
  using Mask = bool;
  WEFT_INLINE static float number(float x) { return x; }
  WEFT_INLINE static float add(float a, float b) { return ptx::sum(a, b); }
  WEFT_INLINE static float multiply(float a, float b) { return ptx::product(a, b); }
  WEFT_INLINE static float choose(bool mask, float a, float b) { return mask ? a : b; }
  WEFT_INLINE static int choose(bool mask, int a, int b) { return mask ? a : b; }
  WEFT_INLINE static float from_bits(int bits) { return ptx::from_bits(static_cast<u32>(bits)); }
  WEFT_INLINE static int bits(float x) { return static_cast<int>(ptx::to_bits(x)); }
  WEFT_INLINE static int truncated(float x) { return static_cast<int>(x); }
  WEFT_INLINE static bool equal(float a, float b) { return a == b; }
  WEFT_INLINE static bool at_least(float a, float b) { return a >= b; }
};

// Bits in the order of logits, both zeros alike; and back.
WEFT_INLINE u32 key_of(float logit) {
  const u32 bits = ptx::to_bits(ptx::sum(logit, 0.f));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
WEFT_INLINE float logit_of(u32 key) { return ptx::from_bits((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key); }

WEFT_INLINE u64 shuffle_wide(u64 x, int from) {
  const u32 low = ptx::shuffle(static_cast<u32>(x), from), high = ptx::shuffle(static_cast<u32>(x >> 32), from);
  return static_cast<u64>(high) << 32 | low;
}
// Sums of the lanes up to this one.
WEFT_INLINE u64 running_lane_sum(u64 x) {
  WEFT_UNROLL
  for (int step = 1; step < 32; step *= 2) {
    const u64 other = shuffle_wide(x, ptx::lane() >= step ? ptx::lane() - step : ptx::lane());
    x += ptx::lane() >= step ? other : 0;
  }
  return x;
}
WEFT_INLINE u64 lane_total(u64 x) { return shuffle_wide(running_lane_sum(x), 31); }
// Of all threads. `of_warps` is free again behind the next barrier.
WEFT_INLINE u64 cta_total(u64 x, u64* of_warps) {
  x = lane_total(x);
  if (ptx::lane() == 0) of_warps[ptx::warp()] = x;
  ptx::cta_sync();
  u64 total = 0;
  for (int warp = 0; warp < kDrawWarps; ++warp) total += of_warps[warp];
  return total;
}

// Adds a token to a bin, in whatever order: a sum's upper word counts how often the lower one began anew.
template <class Bins>
WEFT_INLINE void add_to_bin(Bins& bins, int bin, u32 weight) {
  ptx::atomic_add_shared(&bins.count[bin], 1);
  const u32 old = ptx::atomic_add_shared(&bins.low[bin], weight);
  if (old + weight < old) ptx::atomic_add_shared(&bins.high[bin], 1);
}

}  // namespace weft::ops
