// Loops over a row of logits and its weights (tile/abi/draw.h), compiled once per instruction set, with the same
// results on all of them.
#pragma once

#include "device/cpu/built_isas.h"
#include "tile/abi/draw.h"

namespace weft::ops {

struct DrawTable {
  static constexpr int kBlock = 64;   // tokens whose weights are summed apart
  static constexpr int kBins = 2048;  // of tokens with a weight, by their logits: the largest come first

  // Of each block the largest logit; NaN counts as -inf. Returns whether there is one.
  bool (*largest_of_blocks)(const float* row, long long n, float* largest);
  // -inf and NaN are equal to nothing; n where there is none.
  long long (*first_equal)(const float* row, long long n, float value);
  // Sums of blocks of tokens with at least this logit and this weight. A limit of NaN: there are none.
  void (*sum_blocks)(const float* row, const int* weights, long long n, float least_logit, int least_weight,
                     unsigned long long* sums);
  // Tokens of at least this logit, ascending. Returns how many; `ids` has room for n.
  long long (*select)(const float* row, long long n, float least, int* ids);
  void (*change)(float* row, const tile::DrawPenalties& penalties, const tile::LogitChange* changes, long long n);
  // The sum of e^(logit - largest), `largest` finite, in fp32 within blocks of 256.
  double (*sum_of_exp)(const float* row, long long n, float largest);

  // What depends on how numbers weigh. `largest` is above -inf, and of probabilities above 0 and finite; no number of
  // the row is above it. `scale`: of a logit 1 / temperature, of a probability scale_of_shares(largest).
  struct Weighing {
    // Weights, and their sums of blocks.
    void (*weigh)(const float* row, long long n, float largest, float scale, int* weights, unsigned long long* sums);
    // The bin of each token with a weight that is in one of the first `num_bins` becomes larger by its weight, or by 1.
    // The bin behind them, for which there is room, becomes anything.
    void (*add_to_bins)(const float* row, const int* weights, long long n, float largest, float scale, int num_bins,
                        bool counts, unsigned long long* bins);
    // Tokens of the bin, ascending, as `select` gives them.
    long long (*select_bin)(const float* row, long long n, float largest, float scale, int bin, int* ids);
    // The bin behind all whose exponent, or share (tile/draw.h), is at least this.
    int (*bins_down_to)(float measure);
  };
  Weighing logits, probabilities;
};

WEFT_DECLARE_PER_ISA(const DrawTable draw_loops)

}  // namespace weft::ops
