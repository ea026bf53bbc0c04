// The k largest of n keys, without sorting: of equal keys the first ones, whatever the number of threads. The threshold
// is found digit by digit, from counts of keys by their next 8 bits.
//
//   const Chosen chosen = find_largest<256>(n, k, key, scratch);                    // key(i): that of i, as u32
//   for_chosen<256>(n, chosen, key, scratch, [&](int i, int place) { to[place] = i; });   // i ascends with place
#pragma once

#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/math.h"
#include "tile/cuda/ptx/shuffle.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::tile {

// Keys are ordered as the numbers are; x is neither NaN nor -0.
WEFT_INLINE u32 ordered_key(float x) {
  const u32 bits = ptx::to_bits(x);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

// Of the CTA, in shared memory.
struct SelectScratch {
  u32 bins[256];
  int above[32], equal[32];  // keys that each warp has found
  u32 digit;
  int left;
};

// All keys above `least`, and the first `num_equal` of those that equal it.
struct Chosen {
  u32 least;
  int num_equal;
};

// Sum of x over the lanes before this one; `all` is that of all lanes.
WEFT_INLINE int sum_of_lanes_before(int x, int& all) {
  int sum = x;
  WEFT_UNROLL
  for (int d = 1; d < 32; d *= 2) {
    const int before = static_cast<int>(ptx::shuffle(static_cast<u32>(sum), ptx::lane() - d & 31));
    sum += ptx::lane() >= d ? before : 0;
  }
  all = static_cast<int>(ptx::shuffle(static_cast<u32>(sum), 31));
  return sum - x;
}

// 1 <= k <= n. All threads of a CTA of kThreads, at least 256, call; the scratch is free again behind the next barrier.
template <int kThreads, class Key>
WEFT_INLINE Chosen find_largest(int n, int k, const Key& key, SelectScratch& scratch) {
  constexpr int kBins = 256;
  static_assert(kThreads >= kBins);
  const int thread = ptx::thread_index();
  Chosen chosen = {0, k};
  u32 known = 0;  // bits of `least`
  WEFT_NO_UNROLL
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (thread < kBins) scratch.bins[thread] = 0;
    ptx::cta_sync();
    WEFT_NO_UNROLL
    for (int i = thread; i < n; i += kThreads) {
      const u32 x = key(i);
      if ((x & known) == chosen.least) ptx::atomic_add_shared(scratch.bins + (x >> shift & 255), 1);
    }
    ptx::cta_sync();
    // A thread has a bin, the largest digit first, and how many keys lie in bins before it.
    const int own = thread < kBins ? static_cast<int>(scratch.bins[kBins - 1 - thread]) : 0;
    int of_warp;
    int before = sum_of_lanes_before(own, of_warp);
    if (ptx::lane() == 0) scratch.above[ptx::warp()] = of_warp;
    ptx::cta_sync();
    WEFT_NO_UNROLL
    for (int warp = 0; warp < ptx::warp(); ++warp) before += scratch.above[warp];
    if (before < chosen.num_equal && chosen.num_equal <= before + own) {
      scratch.digit = static_cast<u32>(kBins - 1 - thread);
      scratch.left = chosen.num_equal - before;
    }
    ptx::cta_sync();
    chosen.least |= scratch.digit << shift;
    chosen.num_equal = scratch.left;
    known |= 255u << shift;
  }
  return chosen;
}

// Calls take(i, place) for each chosen key, place counting them by i. All threads call; as find_largest.
template <int kThreads, class Key, class Take>
WEFT_INLINE void for_chosen(int n, const Chosen& chosen, const Key& key, SelectScratch& scratch, const Take& take) {
  // A warp has keys that follow each other, 32 at a time.
  constexpr int kWarps = kThreads / 32;
  const int per_warp = (n + 32 * kWarps - 1) / (32 * kWarps) * 32, lane = ptx::lane();
  const int begin = ptx::warp() * per_warp, end = begin + per_warp < n ? begin + per_warp : n;
  int above = 0, equal = 0;
  WEFT_NO_UNROLL
  for (int first = begin; first < end; first += 32) {
    const int i = first + lane;
    const u32 x = i < end ? key(i) : 0;
    above += ptx::count_bits(ptx::ballot(i < end && x > chosen.least));
    equal += ptx::count_bits(ptx::ballot(i < end && x == chosen.least));
  }
  if (lane == 0) {
    scratch.above[ptx::warp()] = above;
    scratch.equal[ptx::warp()] = equal;
  }
  ptx::cta_sync();
  above = equal = 0;
  WEFT_NO_UNROLL
  for (int warp = 0; warp < ptx::warp(); ++warp) {
    above += scratch.above[warp];
    equal += scratch.equal[warp];
  }
  const u32 lanes_before = (1u << lane) - 1;
  WEFT_NO_UNROLL
  for (int first = begin; first < end; first += 32) {
    const int i = first + lane;
    const u32 x = i < end ? key(i) : 0;
    const bool is_above = i < end && x > chosen.least, is_equal = i < end && x == chosen.least;
    const u32 all_above = ptx::ballot(is_above), all_equal = ptx::ballot(is_equal);
    const int rank = equal + ptx::count_bits(all_equal & lanes_before);
    if (is_above || (is_equal && rank < chosen.num_equal))
      take(i, above + ptx::count_bits(all_above & lanes_before) + (rank < chosen.num_equal ? rank : chosen.num_equal));
    above += ptx::count_bits(all_above);
    equal += ptx::count_bits(all_equal);
  }
}

}  // namespace weft::tile
