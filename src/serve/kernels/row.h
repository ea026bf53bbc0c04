// Loops over a row of logits or of weights, compiled once per instruction set, with the same bits on all of them.
#pragma once

#include "device/cpu/built_isas.h"

namespace weft::serve {

struct RowTable {
  static constexpr int kBlock = 256;  // weights that are summed apart

  float (*largest)(const float* row, long long n);                       // NaN counts as -inf
  long long (*first_equal)(const float* row, long long n, float value);  // n where there is none
  // exp(scale * (logit - largest)), `largest` finite and no logit above it; 0 of -inf and NaN.
  void (*weigh)(const float* row, long long n, float largest, float scale, float* weights);
  // Of each block: the sum of its weights that are at least `least`, and the largest of all.
  void (*sum_blocks)(const float* weights, long long n, float least, double* sums, float* most);
  // Sums of all weights that are at least limits[0], ..., limits[kLimits - 1].
  static constexpr int kLimits = 8;
  void (*sum_from)(const float* weights, long long n, const float* limits, double* sums);
  // Numbers of the weights above `above` and up to `most`, ascending. Returns how many; `numbers` has room for n.
  long long (*select)(const float* weights, long long n, float above, float most, int* numbers);
};

WEFT_DECLARE_PER_ISA(const RowTable row_loops)

}  // namespace weft::serve
