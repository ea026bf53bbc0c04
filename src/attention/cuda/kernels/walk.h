// Which tiles of an item's keys are multiplied: those that some row sees.
#pragma once

#include "attention/cuda/kernels/item.h"

namespace weft::attention::cuda {

// Tile i of kTileKeys begins at token at(i) of the page list; tokens from `end` on are none of the item's.
template <int kTileKeys>
struct Walk : WalkOfTiles {
  WEFT_INLINE int at(int tile) const { return begin + tile * kTileKeys + (tile >= gap_tile ? gap : 0); }

  // All of [kv_begin, kv_end).
  WEFT_INLINE static Walk over(int kv_begin, int kv_end) {
    return {{kv_begin, kv_end, kv_end > kv_begin ? tiles_to(kv_end - kv_begin) : 0, 0, 0}};
  }
  // What rows see of it; `first_pos`: the position of token 0.
  WEFT_INLINE static Walk over_seen(const VisibleRange& visible, int first_pos, int kv_begin, int kv_end) {
    // The intervals that any of them sees, counted from kv_begin: the earlier one first, an empty one last.
    const int len = kv_end > kv_begin ? kv_end - kv_begin : 0;
    const auto inside = [&](int pos) {
      const int t = pos - first_pos - kv_begin;
      return t < 0 ? 0 : t > len ? len : t;
    };
    int low[2], high[2];
    WEFT_UNROLL
    for (int i = 0; i < 2; ++i) {
      low[i] = inside(visible.low[i]);
      high[i] = inside(visible.high[i]);
      if (low[i] >= high[i]) low[i] = high[i] = len;
    }
    const bool ordered = low[0] <= low[1];
    const int low_a = ordered ? low[0] : low[1], high_a = ordered ? high[0] : high[1];
    const int low_b = ordered ? low[1] : low[0], high_b = ordered ? high[1] : high[0];
    const int first = low_a / kTileKeys, end = low_b < high_b && high_b > high_a ? high_b : high_a;
    const int gap_begin = tiles_to(high_a), gap_end = low_b < high_b ? low_b / kTileKeys : 0;
    const int gap = gap_end > gap_begin ? gap_end - gap_begin : 0;
    const int num_tiles = low_a < high_a ? tiles_to(end) - first - gap : 0;
    return {{kv_begin + first * kTileKeys, kv_begin + end, num_tiles, gap_begin - first, gap * kTileKeys}};
  }

 private:
  WEFT_INLINE static int tiles_to(int tokens) { return (tokens + kTileKeys - 1) / kTileKeys; }
};

// The keys that a row sees, by position: [low, high) but for the gap.
struct SeenKeys {
  int low, high, gap_low, gap_high;
};
WEFT_INLINE SeenKeys seen_keys(const Visible& visible) {
  const int low[2] = {visible.lower[0], visible.lower[1]}, high[2] = {visible.upper[0], visible.upper[1]};
  if (low[1] >= high[1]) return {low[0], high[0], 0, 0};
  if (low[0] >= high[0]) return {low[1], high[1], 0, 0};
  const int last = high[0] > high[1] ? high[0] : high[1];
  return low[0] <= low[1] ? SeenKeys{low[0], last, high[0], low[1]} : SeenKeys{low[1], last, high[1], low[0]};
}

}  // namespace weft::attention::cuda
