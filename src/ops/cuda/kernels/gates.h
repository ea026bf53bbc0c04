// What is done to single numbers, or to a pair.
#pragma once

#include "tile/cuda/variant.h"

namespace weft::ops {

// x / (1 + e^-x), or x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) as x / (1 + e^-2z). Held to where they have
// vanished: beyond, what exp was held to would not outweigh x.
WEFT_INLINE float gate_of(float x, bool gelu) {
  const float least = gelu ? -11.f : -88.f;
  const float held = x < least ? least : x;
  const float z = gelu ? 1.5957691216f * (held + 0.044715f * held * held * held) : held;
  return held / (1.f + weft::exp(-z));
}

// cap * tanh(x / cap); x itself where the cube of x / cap is not seen.
WEFT_INLINE float capped(float x, float cap) {
  const float inverse = 1.f / cap, bounded = inverse < 1.5e38f ? inverse : 1.5e38f;
  const float z = bounded * x;
  return z < 2e-4f && z > -2e-4f ? x : cap * weft::tanh(z);
}

WEFT_INLINE void rotate(float& a, float& b, float cos, float sin) {
  const float x = a, y = b;
  a = x * cos - y * sin;
  b = y * cos + x * sin;
}

}  // namespace weft::ops
