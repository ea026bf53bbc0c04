// The math of a variant's text in float, the same for every target. Plain scalar code that compilers vectorise at -O3
// -fno-trapping-math -fno-math-errno; NaN in gives NaN out whatever the payload. docs/numerics.md lists the error of each
// function.
//
//   weft::exp(0) == 1;  weft::exp(-100) == 0;  weft::tanh(x);  weft::fast_tanh(x);  weft::sigmoid(x);  weft::log(x)
//
// A target brings infinity(), sqrt(x) and, in weft::detail, from_bits, to_bits and not_a_number.
// Part of the generated text, so it includes nothing. tile/reference/math.h is the same in double.
#pragma once

namespace weft {

namespace detail {
// 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits.
inline constexpr float kRound = 12582912.f;
}  // namespace detail

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

// tanh(x) within 7.5e-5 of itself, with neither an exponential nor a division: a quotient of polynomials, cut off where it
// leaves tanh. Its divisor is inverted by two steps of Newton's from a guess at the bits.
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

WEFT_INLINE float sigmoid(float x) { return 1.f / (1.f + exp(-x)); }

// Natural logarithm; -inf at 0, NaN below. Subnormal arguments count as 0.
WEFT_INLINE float log(float x) {
  const unsigned bits = detail::to_bits(x);
  // x = 2^e * m with m in [sqrt(1/2), sqrt(2)).
  const unsigned shifted = bits - 0x3f3504f3u;
  const float e = float(int(shifted) >> 23);
  const float m = detail::from_bits((shifted & 0x007fffffu) + 0x3f3504f3u);
  const float s = (m - 1.f) / (m + 1.f);
  const float z = s * s;
  float h = 2.333096409e-01f;
  h = h * z + 2.855080255e-01f;
  h = h * z + 4.000012200e-01f;
  h = h * z + 6.666666655e-01f;
  float y = e * 0.69140625f + (2.f * s + (s * z * h + e * 1.7409305599453094e-03f));
  y = x < 1.17549435e-38f ? -infinity() : y;
  y = x < 0.f ? detail::not_a_number() : y;
  y = x == infinity() ? x : y;
  return x != x ? x : y;
}

WEFT_INLINE float rsqrt(float x) { return 1.f / sqrt(x); }

namespace detail {
// Sine of x + quarter * pi/2; |x| <= 50,000. pi/2 in three parts, the first two short enough to multiply exactly.
WEFT_INLINE float sine(float x, unsigned quarter) {
  const float t = x * 0.636619772f + kRound;
  const float n = t - kRound;
  const float r = ((x - n * 1.5703125f) - n * 4.837512969970703125e-04f) - n * 7.549790126404332e-08f;
  const float z = r * r;
  const float s = r + r * z * (-1.666666466e-01f + z * (8.332748267e-03f + z * -1.958789047e-04f));
  const float c = 1.f - 0.5f * z + z * z * (4.166666466e-02f + z * (-1.388830300e-03f + z * 2.454793799e-05f));
  const unsigned q = to_bits(t) + quarter;
  const float y = (q & 1u) ? c : s;
  return (q & 2u) ? -y : y;
}
}  // namespace detail
WEFT_INLINE float sin(float x) { return detail::sine(x, 0); }
WEFT_INLINE float cos(float x) { return detail::sine(x, 1); }

}  // namespace weft
