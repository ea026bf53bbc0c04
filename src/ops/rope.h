// The angles of rotary embedding, computed once for the rows of a step and used by every layer.
#pragma once

#include <span>
#include <vector>

#include "weft/ops.h"

namespace weft::ops {

struct RopeTable {
  int pairs = 0;  // rotary_dim / 2
  RopePairs order = RopePairs::adjacent;
  std::vector<float> cos, sin;  // [rows][pairs]
};
// Throws Error(invalid_argument) for params that do not fit head_dim.
void make_rope_table(std::span<const int32_t> positions, const RopeParams& params, int64_t head_dim, RopeTable& table);
// What every position turns the pairs by.
struct RopeFrequencies {
  RopePairs order = RopePairs::adjacent;
  double factor = 1;            // of cos and sin
  std::vector<double> radians;  // [pairs], from one position to the next
};
// Throws like make_rope_table.
RopeFrequencies rope_frequencies(const RopeParams& params, int64_t head_dim);
// In place on x [rows, heads, dim], row r by the table's row first + r.
void apply_rope_table(const TensorView& x, const RopeTable& table, int64_t first, Stream stream);

}  // namespace weft::ops
