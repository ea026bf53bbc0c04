// The k largest of n keys, without sorting: of equal keys the first ones, whatever the number of threads. The threshold
// is found from counts of keys in 256 parts of the range that they lie in, then of the part that holds it, and so on,
// until that has so few keys that a warp compares each with each.
//
//   const Chosen chosen = find_largest<256>(n, k, key, scratch);          // key(i): that of i, as u32, above 0
//   for_chosen<256>(0, n, chosen, key, scratch, [&](int i, int place) { to[place] = i; });   // i ascends with place
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

inline constexpr int kSelectBins = 256;

struct SelectCount {
  int above, equal;  // keys, of the threshold
};
// Of the CTA, in shared memory.
struct SelectScratch {
  u32 bins[kSelectBins];  // bin_slot()
  u32 few[32], num_few;
  // Of each warp.
  u32 least[16], most[16];
  SelectCount before[16], own[16];
};

// All keys above `least`, and the first `num_equal` of those that equal it.
struct Chosen {
  u32 least;
  int num_equal;
};

// Sum of x over the lanes before this one.
WEFT_INLINE int sum_of_lanes_before(int x) {
  int sum = x;
  WEFT_UNROLL
  for (int d = 1; d < 32; d *= 2) {
    const int before = static_cast<int>(ptx::shuffle(static_cast<u32>(sum), ptx::lane() - d & 31));
    sum += ptx::lane() >= d ? before : 0;
  }
  return sum - x;
}

// The range that keys lie in.
struct KeyRange {
  u32 least, most;

  WEFT_INLINE bool holds(u32 x) const { return x - least <= most - least; }
  // A key in a range of kSelectBins parts: that many bits are left out.
  WEFT_INLINE int shift() const {
    const u32 span = most - least;
    return span < kSelectBins ? 0 : 24 - ptx::leading_zeros(span);
  }
};

// Where a bin lies: a lane sums 8 that follow each other, and lanes read side by side.
WEFT_INLINE int bin_slot(int bin) { return bin % (kSelectBins / 32) * 32 + bin / (kSelectBins / 32); }

// The part of the range, the largest keys first, that holds the left-th key. By each warp for itself.
struct FoundPart {
  int bin, before, count;  // keys before it, and in it
};
WEFT_INLINE FoundPart find_part(const u32* bins, int left) {
  constexpr int kEach = kSelectBins / 32;
  const int first = kSelectBins - 1 - kEach * ptx::lane();
  const auto count_of = [&](int i) { return static_cast<int>(bins[bin_slot(first - i)]); };
  int sum = 0;
  WEFT_UNROLL
  for (int i = 0; i < kEach; ++i) sum += count_of(i);
  int before = sum_of_lanes_before(sum);
  const bool is_here = before < left && left <= before + sum;
  const int lane = ptx::least_of_lanes(is_here ? ptx::lane() : 32);
  FoundPart found = {first, before, 0};
  WEFT_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const int count = count_of(i);
    if (is_here && before < left && left <= before + count) found = {first - i, before, count};
    before += count;
  }
  const auto of_lane = [&](int x) { return static_cast<int>(ptx::shuffle(static_cast<u32>(x), lane)); };
  return {of_lane(found.bin), of_lane(found.before), of_lane(found.count)};
}

// The same of up to 32 keys, each with a lane that has it.
WEFT_INLINE Chosen find_among_lanes(u32 key, int count, int left) {
  int above = 0, equal = 0;
  WEFT_NO_UNROLL
  for (int first = 0; first < count; first += 4) WEFT_UNROLL
  for (int i = 0; i < 4; ++i) {
    const u32 other = ptx::shuffle(key, first + i);
    above += first + i < count && other > key ? 1 : 0;
    equal += first + i < count && other == key ? 1 : 0;
  }
  const bool is_it = ptx::lane() < count && above < left && left <= above + equal;
  const int lane = ptx::least_of_lanes(is_it ? ptx::lane() : 32);
  return {ptx::shuffle(key, lane), left - static_cast<int>(ptx::shuffle(static_cast<u32>(above), lane))};
}

// The range of n keys, and no key counted. All threads.
template <int kThreads, class Key>
WEFT_INLINE KeyRange begin_to_select(int n, const Key& key, SelectScratch& scratch) {
  const int thread = ptx::thread_index();
  u32 least = 0xffffffffu, most = 0;
  WEFT_NO_UNROLL
  for (int i = thread; i < n; i += kThreads) {
    const u32 x = key(i);
    least = x < least ? x : least;
    most = x > most ? x : most;
  }
  const auto least_of = [](u32 x) {  // of lanes; signed words have another order
    constexpr u32 kSign = 0x80000000u;
    return static_cast<u32>(ptx::least_of_lanes(static_cast<int>(x ^ kSign))) ^ kSign;
  };
  least = least_of(least);
  most = ~least_of(~most);
  if (ptx::lane() == 0) {
    scratch.least[ptx::warp()] = least;
    scratch.most[ptx::warp()] = most;
  }
  if (thread < kSelectBins) scratch.bins[thread] = 0;
  if (thread == 0) scratch.num_few = 0;
  ptx::cta_sync();
  const int warp = ptx::lane() % (kThreads / 32);
  return {least_of(scratch.least[warp]), ~least_of(~scratch.most[warp])};
}

// 1 <= k <= n. All threads of a CTA of kThreads, 256 to 512, call; the scratch is free again behind the next barrier.
template <int kThreads, class Key>
WEFT_INLINE Chosen find_largest(int n, int k, const Key& key, SelectScratch& scratch) {
  static_assert(kThreads >= kSelectBins && kThreads <= 512);
  const int thread = ptx::thread_index();
  const auto for_keys_in = [&](const KeyRange& range, const auto& work) {
    WEFT_NO_UNROLL
    for (int i = thread; i < n; i += kThreads)
      if (const u32 x = key(i); range.holds(x)) work(x);
  };
  KeyRange range = begin_to_select<kThreads>(n, key, scratch);
  int left = k;
  WEFT_NO_UNROLL
  while (range.least != range.most) {
    const int shift = range.shift();
    for_keys_in(range, [&](u32 x) {
      ptx::atomic_add_shared(scratch.bins + bin_slot(static_cast<int>(x - range.least >> shift)), 1);
    });
    ptx::cta_sync();
    const FoundPart found = find_part(scratch.bins, left);
    left -= found.before;
    range.least += static_cast<u32>(found.bin) << shift;
    range.most = range.least + ((1u << shift) - 1);  // beyond all keys, and 0, for the last part, perhaps
    if (found.count <= 32) {
      for_keys_in(range, [&](u32 x) { scratch.few[ptx::atomic_add_shared(&scratch.num_few, 1)] = x; });
      ptx::cta_sync();
      return find_among_lanes(ptx::lane() < found.count ? scratch.few[ptx::lane()] : 0, found.count, left);
    }
    ptx::cta_sync();  // every warp has found it
    if (thread < kSelectBins) scratch.bins[thread] = 0;
    ptx::cta_sync();
  }
  return {range.least, left};
}

// Calls take(i, place) for each chosen key of [begin, end), place counting all chosen ones by i, also those before
// `begin`. All threads call, as find_largest, whose scratch this is.
template <int kThreads, class Key, class Take>
WEFT_INLINE void for_chosen(int begin, int end, const Chosen& chosen, const Key& key, SelectScratch& scratch,
                            const Take& take) {
  // A warp has keys that follow each other, 32 at a time, and counts its share of those before `begin`.
  constexpr int kWarps = kThreads / 32;
  const int lane = ptx::lane(), warp = ptx::warp();
  const int per_warp = (end - begin + 32 * kWarps - 1) / (32 * kWarps) * 32;
  const int own = begin + warp * per_warp, own_end = own + per_warp < end ? own + per_warp : end;
  const auto count = [&](int first, int step, int to) {
    SelectCount all = {0, 0};
    WEFT_NO_UNROLL
    for (; first < to; first += step) {
      const u32 x = first + lane < to ? key(first + lane) : 0;
      all.above += ptx::count_bits(ptx::ballot(x > chosen.least));
      all.equal += ptx::count_bits(ptx::ballot(x == chosen.least));
    }
    return all;
  };
  const SelectCount before = count(32 * warp, kThreads, begin), of_own = count(own, 32, own_end);
  if (lane == 0) {
    scratch.before[warp] = before;
    scratch.own[warp] = of_own;
  }
  ptx::cta_sync();
  // A lane has what a warp counted.
  const auto sum_before = [&](int SelectCount::*count_of) {
    int sum = lane < kWarps ? scratch.before[lane].*count_of : 0;
    sum += lane < warp ? scratch.own[lane].*count_of : 0;
    WEFT_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) sum += static_cast<int>(ptx::shuffle_xor(static_cast<u32>(sum), mask));
    return sum;
  };
  int above = sum_before(&SelectCount::above), equal = sum_before(&SelectCount::equal);
  const u32 lanes_before = (1u << lane) - 1;
  WEFT_NO_UNROLL
  for (int first = own; first < own_end; first += 32) {
    const int i = first + lane;
    const u32 x = i < own_end ? key(i) : 0;
    const bool is_above = x > chosen.least, is_equal = i < own_end && x == chosen.least;
    const u32 all_above = ptx::ballot(is_above), all_equal = ptx::ballot(is_equal);
    const int rank = equal + ptx::count_bits(all_equal & lanes_before);
    if (is_above || (is_equal && rank < chosen.num_equal))
      take(i, above + ptx::count_bits(all_above & lanes_before) + (rank < chosen.num_equal ? rank : chosen.num_equal));
    above += ptx::count_bits(all_above);
    equal += ptx::count_bits(all_equal);
  }
}

}  // namespace weft::tile
