// The math of a variant's text in float, as far as it is the same for every target: what has an instruction on some
// target is in float_exp.h and float_tanh.h, or the target's own. Plain scalar code that compilers vectorise at -O3
// -fno-trapping-math -fno-math-errno; NaN in gives NaN out whatever the payload. docs/numerics.md lists the error of
// each function.
//
//   weft::log(x);  weft::rsqrt(x);  weft::sin(x);  weft::cos(x)
//
// A target brings infinity(), sqrt(x) and, in weft::detail, from_bits, to_bits and not_a_number.
// Part of the generated text, so it includes nothing. tile/reference/math.h is the same in double.
#pragma once

namespace weft {

namespace detail {
// 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits.
inline constexpr float kRound = 12582912.f;
}  // namespace detail

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
