// The hyperbolic tangent of a variant's text where no instruction makes it; as float_math.h, which stands before it.
// Part of the generated text, so it includes nothing.
#pragma once

namespace weft {

// e^x - 1 without cancellation near 0; |x| <= 60.
WEFT_INLINE float expm1_small(float x) {
  const float t = x * 1.44269504f + (detail::kRound + 127.f);
  const float r = t - (detail::kRound + 127.f);
  const float f = (x - r * 0.69140625f) - r * 1.7409305599453094e-03f;
  float g = 1.393364103e-03f;
  g = g * f + 8.369148491e-03f;
  g = g * f + 4.166646501e-02f;
  g = g * f + 1.666650526e-01f;
  g = g * f + 5.000000013e-01f;
  g = g * f + 1.000000011e+00f;
  const float scale = detail::from_bits(detail::to_bits(t) << 23);
  return scale * (g * f) + (scale - 1.f);
}

WEFT_INLINE float tanh(float x) {
  float y = 2.f * x;
  y = y < -20.f ? -20.f : y;
  y = y > 20.f ? 20.f : y;
  const float e = expm1_small(y);
  return e / (e + 2.f);
}

// tanh(x) within 7.5e-5 of itself, with neither an exponential nor a division: a quotient of polynomials, cut off where
// it leaves tanh. Its divisor is inverted by two steps of Newton's from a guess at the bits.
WEFT_INLINE float fast_tanh(float x) {
  x = x < -4.8f ? -4.8f : x;
  x = x > 4.8f ? 4.8f : x;
  const float z = x * x;
  const float p = x * (135135.f + z * (17325.f + z * (378.f + z)));
  const float q = 135135.f + z * (62370.f + z * (3150.f + z * 28.f));
  float inverse = detail::from_bits(0x7ef311c7u - detail::to_bits(q));
  inverse = inverse * (2.f - q * inverse);
  inverse = inverse * (2.f - q * inverse);
  return p * inverse;
}

}  // namespace weft
