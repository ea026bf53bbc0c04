// Values that are not finite reach only rows whose intervals hold their slots. A row that does not see a column has
// p = 0 there, but 0 times NaN is NaN: in tiles that rows see differently, the products take such values for
// zeros, and rows that see them get them afterwards. That is done when a state shows the need: a second pass over the
// item, so that finite values pay one look at its output.
#include "attention/cpu/kernels/attend.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

bool Item::must_contain() const {
  if (num_rows_ == 1) return false;  // what the only row does not see is left out already
  F32 sum0 = {}, sum1 = {};
  for (const float* o = b_.o; o < b_.o + b_.states * b_.ld_o; o += kPanel) {
    sum0 += load(o) * broadcast(0.f);
    sum1 += load(o + kLanes) * broadcast(0.f);
  }
  return sum_lanes(sum0 + sum1) != 0;
}

// One token's value in fp32, as its hook made it; returns what it is to be multiplied by.
float Item::load_value(const Source& source, const Slice& token, float* value) {
  const Side one = side(source, token);
  one.loader->widen_rows(one.rows + token.begin, one.offset, 1, source.dim, {}, value, source.dim);
  float scale = 1;
  if (args_.scaling == Scaling::token && !source.hook)
    __builtin_memcpy(&scale, b_.scale_rows[token.stage][1][token.begin] + token.head * source.scale.head_stride,
                     sizeof scale);
  return scale;
}

// Finds them in a tile, and lets probabilities stand as they are for their tokens.
void Item::find_non_finite(const KvTile& tile, int stage, int heads) {
  if (!contains(tile)) return;
  const Source source = values();
  float value[kMaxHeadDim];
  for (int h = 0; h < heads; ++h)
    for (int t = 0; t < tile.n; ++t) {
      unsigned char& found = b_.non_finite[static_cast<long long>(h) * b_.tokens + t];
      found = 0;
      if (!b_.marks[t]) continue;
      float sum = 0 * load_value(source, {tile, stage, h, t, 1}, value);
      for (int d = 0; d < source.dim; ++d) sum += 0 * value[d];
      found = sum != 0;
      if (found && args_.scaling == Scaling::token && !source.hook)
        source.scales[static_cast<long long>(h) * b_.tokens + t] = 1;
    }
}

Item::Side Item::contained(const Source& source, const Slice& slice) {
  const Side all = side(source, slice);
  if (!contains(slice.tile)) return all;
  const char** rows = source.hook ? b_.transformed_rows : b_.masked_rows;
  for (int t = slice.begin; t < slice.begin + slice.n; ++t)
    if (b_.non_finite[static_cast<long long>(slice.head) * b_.tokens + t]) rows[t] = kZeros;
  return all;
}

// To the rows of a head that see them. `column` tells where an element stands in the output meanwhile.
void Item::add_non_finite(const KvTile& tile, int stage, int head) {
  if (!contains(tile)) return;
  const Source source = values();
  alignas(64) float column[kMaxHeadDim + 2 * kPanel], value[kMaxHeadDim];
  for (int i = 0; i < b_.ld_o; ++i) column[i] = static_cast<float>(i);
  order_values(column, 1);
  const long long first_state = static_cast<long long>(head) * b_.group_rows;
  for (int t = 0; t < tile.n; ++t) {
    if (!b_.non_finite[static_cast<long long>(head) * b_.tokens + t]) continue;
    const float scale = load_value(source, {tile, stage, head, t, 1}, value);
    for (int i = 0; i < b_.group_rows; ++i) {
      if (!sees(b_.seen[i / args_.group_size], b_.positions[t])) continue;
      const float p = scale * prob((b_.direct ? first_state : 0) + i, t);
      float* o = b_.o + (first_state + i) * b_.ld_o;
      for (int d = 0; d < source.dim; ++d) o[static_cast<int>(column[d])] += p * value[d];
    }
  }
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
