#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE float from_bits(u32 bits) { return __builtin_bit_cast(float, bits); }
WEFT_INLINE u32 to_bits(float x) { return __builtin_bit_cast(u32, x); }
WEFT_INLINE int count_bits(u32 x) { return __builtin_popcount(x); }
WEFT_INLINE int leading_zeros(u32 x) { return x == 0 ? 32 : __builtin_clz(x); }
WEFT_INLINE float product(float a, float b) { return a * b; }
WEFT_INLINE float sum(float a, float b) { return a + b; }
WEFT_INLINE float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
WEFT_INLINE u32 and_or(u32 x, u32 mask, u32 bits) { return (x & mask) | bits; }
WEFT_INLINE u32 and_xor(u32 x, u32 mask, u32 bits) { return (x & mask) ^ bits; }
WEFT_INLINE u32 permute(u32 x, u32 y, u32 bytes) {
  const u64 both = static_cast<u64>(y) << 32 | x;
  u32 z = 0;
  for (int i = 0; i < 4; ++i) z |= (static_cast<u32>(both >> 8 * (bytes >> 4 * i & 7)) & 0xffu) << 8 * i;
  return z;
}
#if WEFT_SM >= 80
WEFT_INLINE u32 multiply_add_bf16x2(u32 a, u32 b, u32 c) {
  const auto element = [](u32 pair, int half) { return from_bits(half == 0 ? pair << 16 : pair & 0xffff0000u); };
  u32 y = 0;
  for (int half = 0; half < 2; ++half) {
    const double exact = static_cast<double>(element(a, half)) * static_cast<double>(element(b, half)) +
                         static_cast<double>(element(c, half));
    const float near = simt::rounded_to_odd(exact);  // exact but for a last bit
    const u32 bits = to_bits(near);
    const u32 rounded = near != near ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    y |= (rounded & 0xffffu) << 16 * half;
  }
  return y;
}
#endif
WEFT_INLINE float exp2_fast(float x) { return simt::exp2(x); }
WEFT_INLINE float log2_fast(float x) { return simt::log2(x); }
WEFT_INLINE float reciprocal_fast(float x) { return simt::reciprocal(x); }
WEFT_INLINE float tanh_fast(float x) { return simt::tanh(x); }
WEFT_INLINE float absolute(float x) { return x < 0.f ? -x : x; }
WEFT_INLINE float square_root(float x) { return simt::square_root(x); }
WEFT_INLINE float larger(float a, float b) { return a != a || b > a ? b : a; }

}  // namespace weft::ptx
