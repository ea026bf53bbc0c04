// The exponentials of a variant's text on a card, whose special function units make 2^x, 1 / x and tanh(x) in an
// instruction each. docs/numerics.md lists the error of each function.
//
//   weft::exp(0) == 1;  weft::exp2(x);  weft::tanh(x);  weft::fast_tanh(x);  weft::sigmoid(x)
#pragma once

#include "tile/variant/float_math.h"

namespace weft {

WEFT_INLINE float exp2(float x) { return ptx::exp2_fast(x); }

// e^x as 2^(r - 1) * (2 * 2^f) with |f| <= 1/2, as on CPUs (float_exp.h): 2^(x log2(e)) would err by what the product
// rounds, as many times as the result is powers of e away from 1.
WEFT_INLINE float exp(float x) {
  x = x < -87.4f ? -87.4f : x;
  x = x > 88.8f ? 88.8f : x;
  const float t = x * 1.44269504f + (detail::kRound + 126.f);
  const float r = t - (detail::kRound + 126.f);
  const float f = (x - r * 0.69140625f) - r * 1.7409305599453094e-03f;
  return detail::from_bits(detail::to_bits(t) << 23) * (2.f * ptx::exp2_fast(f * 1.44269504f));
}

// 1 - 2 / (1 + e^2x): within 4e-7, whatever the result, and exact where it is +-1. What a soft cap adds to the
// instructions of attention is most of what it costs, and tanh relative to small results is three times as many.
WEFT_INLINE float tanh(float x) { return 1.f - ptx::reciprocal_fast(0.5f + 0.5f * ptx::exp2_fast(x * 2.88539008f)); }

WEFT_INLINE float fast_tanh(float x) { return ptx::tanh_fast(x); }

// Before the one of any type: a bit of an operand, and no comparison.
WEFT_INLINE float abs(float x) { return ptx::absolute(x); }

WEFT_INLINE float sigmoid(float x) { return ptx::reciprocal_fast(1.f + exp(-x)); }

}  // namespace weft
