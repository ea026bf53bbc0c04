// The operations of tile/draw.h on one number. Whoever includes this is compiled without contraction, or for a machine
// that has no fused operations.
#pragma once

#include <bit>

#ifndef WEFT_INLINE
#define WEFT_INLINE inline __attribute__((always_inline))
#endif

#include "tile/draw.h"

namespace weft::ops {

struct ScalarMath {
  using Real = float;
  using Int = int;
  using Mask = bool;
  static float number(float x) { return x; }
  static float add(float a, float b) { return a + b; }
  static float multiply(float a, float b) { return a * b; }
  static float choose(bool mask, float a, float b) { return mask ? a : b; }
  static int choose(bool mask, int a, int b) { return mask ? a : b; }
  static float from_bits(int bits) { return std::bit_cast<float>(bits); }
  static int bits(float x) { return std::bit_cast<int>(x); }
  static int truncated(float x) { return static_cast<int>(x); }
  static bool equal(float a, float b) { return a == b; }
  static bool at_least(float a, float b) { return a >= b; }
};

}  // namespace weft::ops
