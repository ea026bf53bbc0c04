// Numbers of 16, 8 and 4 bits from floats, the same on every device. Whoever includes it says first what WEFT_INLINE
// is.
#pragma once

namespace weft::tile {

// The nearest integer to x, ties to even, between -most and most; 0 for NaN.
WEFT_INLINE int nearest_integer(float x, float most) {
  constexpr float kMagic = 12582912.f;
  x = x == x ? x : 0.f;
  x = x < -most ? -most : x > most ? most : x;
  return __builtin_bit_cast(int, x + kMagic) - __builtin_bit_cast(int, kMagic);
}

// fp8 with `mantissa` bits below the leading one, its exponents biased by `bias`: to nearest, ties to even, at most the
// code `most`. NaN has no sign: what signs NaN have differs by device.
template <int mantissa, int bias, unsigned most, unsigned nan>
WEFT_INLINE unsigned char nearest_fp8(float x) {
  constexpr int kShift = 23 - mantissa;
  constexpr unsigned kRebias = static_cast<unsigned>(127 - bias) << 23, kLeastNormal = kRebias + (1u << 23);
  // Adding it rounds to multiples of the smallest number.
  constexpr unsigned kSmall = static_cast<unsigned>(127 + 23 - (bias - 1 + mantissa)) << 23;
  const unsigned bits = __builtin_bit_cast(unsigned, x), magnitude = bits & 0x7fffffffu;
  const unsigned normal = (magnitude - kRebias + (1u << (kShift - 1)) - 1u + (magnitude >> kShift & 1u)) >> kShift;
  const unsigned small =
      __builtin_bit_cast(unsigned, __builtin_bit_cast(float, magnitude) + __builtin_bit_cast(float, kSmall)) - kSmall;
  const unsigned number = magnitude < kLeastNormal ? small : normal;
  const unsigned finite = magnitude >= 0x47800000u || number > most ? most : number;  // from 2^16 on codes wrap
  return static_cast<unsigned char>(magnitude > 0x7f800000u ? nan : finite | (bits >> 24 & 0x80u));
}
WEFT_INLINE unsigned char nearest_e4m3(float x) { return nearest_fp8<3, 7, 0x7e, 0x7f>(x); }
WEFT_INLINE unsigned char nearest_e5m2(float x) { return nearest_fp8<2, 15, 0x7b, 0x7e>(x); }

// bf16 on one side of x: the greatest that is not above it, and the least that is not below. NaN stays NaN.
WEFT_INLINE unsigned short bf16_towards(float x, bool up) {
  const unsigned bits = __builtin_bit_cast(unsigned, x), rest = bits & 0xffffu;
  if (x != x) return 0x7fff;
  const bool grows = rest != 0 && up == (bits >> 31 == 0);  // its magnitude
  return static_cast<unsigned short>((bits >> 16) + (grows ? 1 : 0));
}

}  // namespace weft::tile
