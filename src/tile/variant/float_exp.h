// Exponentials of a variant's text where no instruction makes them; as float_math.h, which stands before it.
//
//   weft::exp(0) == 1;  weft::exp(-100) == 0;  weft::exp2(x);  weft::sigmoid(x)
//
// Part of the generated text, so it includes nothing.
#pragma once

namespace weft {

// 2^x as 2^(r - 1) * (2 * 2^f), r an integer, |f| <= 1/2. The exponent field of 2^(r - 1) is r + 126: 0 for
// r = -126, so results below 2^-125.5 are 0, and 254 for r = 128, so that the product overflows only when it should.
// The factor is multiplied, not added to the exponent: a NaN's payload must not turn into a number.
WEFT_INLINE float exp2(float x) {
  x = x < -126.f ? -126.f : x;
  x = x > 128.f ? 128.f : x;
  const float t = x + (detail::kRound + 126.f);
  const float f = x - (t - (detail::kRound + 126.f));
  float g = f * 1.545316295e-04f + 1.339086336e-03f;
  g = g * f + 9.618082557e-03f;
  g = g * f + 5.550357114e-02f;
  g = g * f + 2.402265076e-01f;
  g = g * f + 6.931471880e-01f;
  return detail::from_bits(detail::to_bits(t) << 23) * (2.f * (g * f) + 2.f);
}

// e^x with the argument reduced by ln 2 in two parts.
WEFT_INLINE float exp(float x) {
  x = x < -87.4f ? -87.4f : x;
  x = x > 88.8f ? 88.8f : x;
  const float t = x * 1.44269504f + (detail::kRound + 126.f);
  const float r = t - (detail::kRound + 126.f);
  const float f = (x - r * 0.69140625f) - r * 1.7409305599453094e-03f;
  float g = 1.393364103e-03f;
  g = g * f + 8.369148491e-03f;
  g = g * f + 4.166646501e-02f;
  g = g * f + 1.666650526e-01f;
  g = g * f + 5.000000013e-01f;
  g = g * f + 1.000000011e+00f;
  return detail::from_bits(detail::to_bits(t) << 23) * (2.f * (g * f) + 2.f);
}

WEFT_INLINE float sigmoid(float x) { return 1.f / (1.f + exp(-x)); }

}  // namespace weft
