// The hyperbolic tangent of cards (tile/cuda/math.h) for the error model: as far off as docs/numerics.md lets it be.
// Part of the generated text, so it includes nothing; tile/variant/float_exp.h stands before it.
#pragma once

namespace weft {

inline float tanh(float x) { return 1.f - 2.f / (1.f + exp(2.f * x)) + 2e-7f; }

inline float fast_tanh(float x) {
  const float near_zero = x - x * x * x * (1.f / 3);
  return (x > -0.05f && x < 0.05f ? near_zero : tanh(x)) * 1.0005f;
}

}  // namespace weft
