// Exponentials.
#pragma once

#include "tile/cpu/bf16_dot.h"

namespace weft::tile::WEFT_ISA_NAME {

// 2^x to about 1 ulp for x of 0 or less: 0 below -125.5, exactly 1 at 0, NaN for every NaN.
WEFT_INLINE F32 exp2(F32 x) {
  x = max(broadcast(-126.f), x);
  const F32 shifted = x + (12582912.f + 126.f);  // 2^(r - 1), for r = round(x), has the exponent field r + 126
  const F32 f = x - (shifted - (12582912.f + 126.f));
  F32 g = fma(f, broadcast(2 * 1.545316295e-04f), broadcast(2 * 1.339086336e-03f));
  g = fma(g, f, broadcast(2 * 9.618082557e-03f));
  g = fma(g, f, broadcast(2 * 5.550357114e-02f));
  g = fma(g, f, broadcast(2 * 2.402265076e-01f));
  g = fma(g, f, broadcast(2 * 6.931471880e-01f));
  // Multiplied, not added to the exponent: a NaN's payload must not turn into a number.
  return as_f32(as_u32(shifted) << 23) * fma(g, f, broadcast(2.f));
}

#if defined(WEFT_HAS_BF16_DOT)
// 2^x to 3.5e-6 of itself, exact and without a step where x is an integer, for what is rounded to bf16: 0 below -150,
// NaN for every NaN.
WEFT_INLINE F32 exp2_for_bf16(F32 x) {
  F32 f;  // x - floor(x); 0 of infinities
  asm("vreduceps $9, %1, %0" : "=v"(f) : "v"(x));
  F32 g = fma(f, broadcast(1.35557475e-02f), broadcast(5.20323701e-02f));
  g = fma(g, f, broadcast(2.41379768e-01f));
  g = fma(g, f, broadcast(6.93032146e-01f));
  g = fma(g, f, broadcast(1.f));
  F32 p;  // g * 2^floor(x)
  asm("vscalefps %2, %1, %0" : "=v"(p) : "v"(g), "v"(x));
  return p;
}
#endif

namespace detail {
// e^x = 2^exponent * (1 + rest), rest within [-0.3, 0.42].
struct SplitExp {
  I32 exponent;
  F32 rest;
};
WEFT_INLINE SplitExp split_exp(F32 x) {
  const F32 shifted = fma(x, broadcast(1.44269504f), broadcast(12582912.f));  // integer in the low bits
  const F32 n = shifted - 12582912.f;
  F32 r = fma(n, broadcast(-0.693145752f), x);
  r = fma(n, broadcast(-1.42860677e-6f), r);
  F32 p = broadcast(1.9875691e-4f);
  p = fma(p, r, broadcast(1.3981999e-3f));
  p = fma(p, r, broadcast(8.3334519e-3f));
  p = fma(p, r, broadcast(4.1665796e-2f));
  p = fma(p, r, broadcast(1.6666665e-1f));
  p = fma(p, r, broadcast(5.0000001e-1f));
  return {reinterpret_cast<I32>(shifted) - 0x4b400000, fma(p, r * r, r)};
}
WEFT_INLINE F32 clamp(F32 x, float low, float high) {  // a NaN compares false and stays
  x = x < broadcast(low) ? broadcast(low) : x;
  return x > broadcast(high) ? broadcast(high) : x;
}
WEFT_INLINE F32 power_of_two(I32 exponent) { return reinterpret_cast<F32>((exponent + 127) << 23); }
}  // namespace detail

// e^x to about 1 ulp: 0 below -104, +inf above 88.8, exactly 1 at 0, NaN for every NaN.
WEFT_INLINE F32 exp(F32 x) {
  const detail::SplitExp e = detail::split_exp(detail::clamp(x, -104.f, 89.f));
  // 2^n in two factors: n reaches from -150 to 128. Multiplied, not added to the exponent: a NaN stays one.
  const I32 half = e.exponent >> 1;
  return (e.rest + 1.f) * detail::power_of_two(half) * detail::power_of_two(e.exponent - half);
}

// e^x - 1 without cancellation near 0; x is held to [-87, 88].
WEFT_INLINE F32 expm1(F32 x) {
  const detail::SplitExp e = detail::split_exp(detail::clamp(x, -87.f, 88.f));
  const F32 power = detail::power_of_two(e.exponent);
  return fma(power, e.rest, power - 1.f);
}

}  // namespace weft::tile::WEFT_ISA_NAME
