// Loops over a row of logits and its weights (tile/abi/draw.h), compiled once per instruction set, with the same
// results on all of them.
#pragma once

#include "device/cpu/built_isas.h"
#include "tile/abi/draw.h"

namespace weft::ops {

struct DrawTable {
  static constexpr int kBlock = 64;   // tokens whose weights are summed apart
  static constexpr int kBins = 2048;  // of tokens with a weight, by their logits: the largest come first

  // Of each block the largest logit; NaN counts as -inf.
  void (*largest_of_blocks)(const float* row, long long n, float* largest);
  // -inf and NaN are equal to nothing; n where there is none.
  long long (*first_equal)(const float* row, long long n, float value);
  // Weights, and their sums of blocks. `largest` is above -inf, and no logit is above it.
  void (*weigh)(const float* row, long long n, float largest, float scale, int* weights, unsigned long long* sums);
  // Sums of blocks of tokens with at least this logit and this weight. A limit of NaN: there are none.
  void (*sum_blocks)(const float* row, const int* weights, long long n, float least_logit, int least_weight,
                     unsigned long long* sums);
  // The bin of each token with a weight that is in one of the first `num_bins` becomes larger by its weight, or by 1.
  // The bin behind them, for which there is room, becomes anything.
  void (*add_to_bins)(const float* row, const int* weights, long long n, float largest, float scale, int num_bins,
                      bool counts, unsigned long long* bins);
  // Tokens of the bin, ascending; those of at least this logit. Returns how many; `ids` has room for n.
  long long (*select_bin)(const float* row, long long n, float largest, float scale, int bin, int* ids);
  long long (*select)(const float* row, long long n, float least, int* ids);
  // The bin behind all whose exponent (tile/draw.h) is at least this.
  int (*bins_down_to)(float exponent);
  void (*change)(float* row, const tile::DrawPenalties& penalties, const tile::LogitChange* changes, long long n);
  // The sum of e^(logit - largest), `largest` finite, in fp32 within blocks of 256.
  double (*sum_of_exp)(const float* row, long long n, float largest);
};

WEFT_DECLARE_PER_ISA(const DrawTable draw_loops)

}  // namespace weft::ops
