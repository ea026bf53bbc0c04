// The greatest of numbers that have indices, and of equals the first; never NaN nor -inf. Whatever the order in which
// they are taken, it is the same.
//
//   Greatest greatest;
//   for (int i = thread; i < n; i += threads) greatest.take(x[i], i);
//   greatest = lane_greatest(greatest);   // all lanes have it
#pragma once

#include "tile/cuda/ptx/math.h"
#include "tile/cuda/ptx/shuffle.h"

namespace weft::tile {

struct Greatest {
  float value = ptx::from_bits(0xff800000u);  // -inf: none was taken
  int index = -1;

  WEFT_INLINE void take(float x, int i) {
    const bool has_none = index < 0;
    if (!(x > value) && (has_none || x != value || i > index)) return;
    value = x;
    index = i;
  }
  // What another one took.
  WEFT_INLINE void take(const Greatest& other) {
    if (other.index >= 0) take(other.value, other.index);
  }
};

WEFT_INLINE Greatest lane_greatest(Greatest own) {
  WEFT_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    Greatest other;
    other.value = ptx::shuffle_xor(own.value, mask);
    other.index = static_cast<int>(ptx::shuffle_xor(static_cast<u32>(own.index), mask));
    own.take(other);
  }
  return own;
}

}  // namespace weft::tile
