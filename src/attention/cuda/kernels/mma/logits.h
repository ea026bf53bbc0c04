// Scores become logits: scaled, changed by the functors of variant and mask, hidden where a row does not see a key.
#pragma once

#include "attention/cuda/kernels/mma/rows.h"

namespace weft::attention::cuda::mma {

// Of one tile of keys, as many as there are of it; kIsWhole: it is known that all of them are.
template <class Shape, class TileRows = Rows<Shape>, bool kIsWhole = false>
class Logits {
  using F = typename Shape::F;
  using Scores = typename Shape::Scores;
  static constexpr bool kBlockSparse = Shape::S::kBlockSparse;
  static constexpr int kFragments = Shape::kStepFragments, kColumns = Shape::kStepKeys / 8, kKeys = Shape::kKeys;

 public:
  WEFT_INLINE Logits(const TileRows& rows, const Thread<Shape>& thread, int tile)
      : rows_(rows),
        thread_(thread),
        tile_(tile),
        sources_(rows.sources(tile)),
        at_(rows.walk().at(tile)),
        begin_(rows.item.first_pos + at_),
        keys_(!kIsWhole && rows.walk().end - at_ < kKeys ? rows.walk().end - at_ : kKeys) {}

  // Whether there are all keys of the tile, and each row sees each of them, but for what a mask's functor hides.
  WEFT_INLINE bool are_seen_by_all() const {
    if (keys_ != kKeys || rows_.has_bits()) return false;
    // Of positions in any order it is known where one query token sees its whole request.
    if (rows_.by_position()) return rows_.item.num_rows == 1 && rows_.visible().is_seen_by_all(0, rows_.row(0).kv_len);
    return rows_.visible().is_seen_by_all(begin_, begin_ + kKeys);
  }
  // Turns scores of keys from `first` on, of fragments from `fragment` on, into logits divided by rows.scale(), hidden
  // ones into what hides them.
  WEFT_INLINE void make(int first, Scores& s, int fragment = 0) const { make(first, s, fragment, are_seen_by_all()); }
  // `all`: are_seen_by_all().
  WEFT_INLINE void make(int first, Scores& s, int fragment, bool all) const {
    if constexpr (Shape::kTokenScales) multiply_by_tokens<Shape>(thread_, rows_.token_scales(tile_).of_key, first, s);
    if (Shape::kFunctor && !(F::leaves_logits(rows_.p) && !Shape::kMaskFunctor)) {
      if constexpr (HeadScales<Shape>::kOfKey) multiply(s, HeadScales<Shape>::of_key(rows_.item));
      call_functors(first, s, fragment);
    } else if (rows_.scales_logits()) {
      multiply(s, rows_.scale_of_logits());
    }
    if (!all) {
      if (rows_.call.mask_error != nullptr) find_left_out();
      if constexpr (Shape::S::kLoaders > 0)
        hide_by_bits(first, s, fragment);
      else if constexpr (kBlockSparse)
        hide_blocks(first, s, fragment);
      else
        hide(first, s, fragment);
    }
  }

 private:
  WEFT_INLINE static void multiply(Scores& s, float factor) {
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int f = 0; f < kColumns; ++f) WEFT_UNROLL
    for (int e = 0; e < 4; ++e) s[m][f][e] *= factor;
  }
  WEFT_INLINE void call_functors(int first, Scores& s, int fragment) const {
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const FusedRow& row = rows_.row(thread_.row(fragment + m, half));
      WEFT_UNROLL
      for (int f = 0; f < kColumns; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e) {
        // Of a key that is not there, the last one's: one instruction where it is written as the smaller of two.
        const int of_lane = first + 8 * f + thread_.column() + e, last = keys_ - 1;
        const int key = kIsWhole || of_lane < last ? of_lane : last;
        float& x = s[m][f][2 * half + e];
        x = F::logit(rows_.p, row, begin_ + key, position_of_key(sources_, begin_, key), x);
      }
    }
  }

  // What a row does not see of keys that follow each other lies outside [low, high), or in the gap between two
  // intervals.
  WEFT_INLINE void hide(int first, Scores& s, int fragment) const {
    const int column = begin_ + first + thread_.column(), end = begin_ + keys_;
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const SeenKeys seen = seen_keys(rows_.row(thread_.row(fragment + m, half)).visible);
      const int low = seen.low - column, high = (seen.high < end ? seen.high : end) - column;
      WEFT_UNROLL
      for (int f = 0; f < kColumns; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e)
        if (8 * f + e < low || 8 * f + e >= high) s[m][f][2 * half + e] = F::hidden();
      if (seen.gap_low >= seen.gap_high) continue;
      WEFT_UNROLL
      for (int f = 0; f < kColumns; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e)
        if (8 * f + e >= seen.gap_low - column && 8 * f + e < seen.gap_high - column)
          s[m][f][2 * half + e] = F::hidden();
    }
  }
  WEFT_INLINE void hide_blocks(int first, Scores& s, int fragment) const {
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int half = 0; half < 2; ++half) WEFT_UNROLL
    for (int f = 0; f < kColumns; ++f) WEFT_UNROLL
    for (int e = 0; e < 2; ++e)
      if (!sees(thread_.row(fragment + m, half), first + 8 * f + thread_.column() + e))
        s[m][f][2 * half + e] = F::hidden();
  }

  // The same beside so many scores that there are no registers for what is known of all keys of lists, and that two
  // comparisons of each wait for each other: a bit of each score says first whether its row sees its key.
  WEFT_INLINE void hide_by_bits(int first, Scores& s, int fragment) const {
    static_assert(kFragments == 1 && 2 * kColumns <= 32);
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const u32 seen = seen_bits(thread_.row(fragment, half), first + thread_.column());
      WEFT_UNROLL
      for (int i = 0; i < 2 * kColumns; ++i)
        if ((seen >> i & 1) == 0) s[0][i / 2][2 * half + i % 2] = F::hidden();
    }
  }
  // Bit i: whether row r sees this lane's i-th key of the tile, of which the first one is number `column`.
  WEFT_INLINE u32 seen_bits(int r, int column) const {
    if constexpr (kBlockSparse) {
      u32 seen = 0;
      WEFT_NO_UNROLL
      for (int i = 0; i < 2 * kColumns; ++i) seen |= sees(r, column + i / 2 * 8 + i % 2) ? 1u << i : 0u;
      return seen;
    } else {
      const SeenKeys keys = seen_keys(rows_.row(r).visible);
      const int end = begin_ + keys_, own = begin_ + column;
      const u32 outer = bits_before((keys.high < end ? keys.high : end) - own) & ~bits_before(keys.low - own);
      return outer & ~(bits_before(keys.gap_high - own) & ~bits_before(keys.gap_low - own));
    }
  }
  // Of a lane's keys, which are 0, 1, 8, 9, 16, ... from its first one on: those before number n.
  WEFT_INLINE static u32 bits_before(int n) {
    if (n <= 0) return 0;
    const int pair = n % 8 < 2 ? n % 8 : 2, count = n / 8 * 2 + pair;
    return count < 32 ? (1u << count) - 1 : ~0u;
  }

  WEFT_INLINE bool sees(int r, int key) const {
    const FusedRow& row = rows_.row(r);
    if (key >= keys_ || !row.visible.holds(position_of_key(sources_, begin_, key))) return false;
    if constexpr (kBlockSparse) return bits_show(rows_.call, sources_[key].bits, row.of_block, at_ + key);
    return true;
  }
  // WEFT_CHECK: a tile that is left out otherwise.
  WEFT_INLINE void find_left_out() const {
    if (rows_.by_position() || rows_.visible().touches(begin_, begin_ + keys_)) return;
    WEFT_NO_UNROLL
    for (int i = thread_.of_tile(); i < rows_.n * keys_; i += Shape::kLogitThreads)
      if (sees(i / keys_, i % keys_)) ptx::atomic_or(rows_.call.mask_error, 1);
  }

  const TileRows& rows_;
  const Thread<Shape>& thread_;
  const int tile_;
  const decltype(static_cast<const TileRows*>(nullptr)->sources(0)) sources_;
  const int at_, begin_, keys_;  // the tile's first token, its position, and how many
};

}  // namespace weft::attention::cuda::mma
