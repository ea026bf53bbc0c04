// Arithmetic that one instruction does, or nearly, and the bits of floats.
#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE float from_bits(u32 bits) { return __uint_as_float(bits); }
WEFT_INLINE u32 to_bits(float x) { return __float_as_uint(x); }

WEFT_INLINE int count_bits(u32 x) { return __popc(x); }  // that are 1
WEFT_INLINE int leading_zeros(u32 x) { return __clz(static_cast<int>(x)); }

// a * b, a + b, and a * b + c, rounded once and as they stand: no compiler makes one of the other.
WEFT_INLINE float product(float a, float b) { return __fmul_rn(a, b); }
WEFT_INLINE float sum(float a, float b) { return __fadd_rn(a, b); }
WEFT_INLINE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// x & mask | bits.
WEFT_INLINE u32 and_or(u32 x, u32 mask, u32 bits) {
  u32 y;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(x), "r"(mask), "r"(bits));
  return y;
}
// x & mask ^ bits.
WEFT_INLINE u32 and_xor(u32 x, u32 mask, u32 bits) {
  u32 y;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(y) : "r"(x), "r"(mask), "r"(bits));
  return y;
}
// Byte i of the result is that of the eight of x and y which nibble i of `bytes` names; x has 0 to 3.
WEFT_INLINE u32 permute(u32 x, u32 y, u32 bytes) { return __byte_perm(x, y, bytes); }
#if WEFT_SM >= 80
// a * b + c in two pairs of bf16 numbers, each rounded once; subnormal numbers are kept, NaN becomes 0x7fff.
WEFT_INLINE u32 multiply_add_bf16x2(u32 a, u32 b, u32 c) {
  u32 y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  return y;
}
#endif

// 2^x within 2 ulp; 0 for -inf, NaN for NaN. Subnormal results are 0.
WEFT_INLINE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// log2(x) within 2^-22 of the larger of 1 and the result; -inf at 0, NaN below.
WEFT_INLINE float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 / x within 1 ulp; 0 for infinities and where it would be subnormal, an infinity for 0 and subnormal x.
WEFT_INLINE float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// tanh(x) within 2^-10.9 of itself, at most 1.
WEFT_INLINE float tanh_fast(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
WEFT_INLINE float square_root(float x) {
  float y;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
WEFT_INLINE float absolute(float x) {
  float y;
  asm("abs.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The larger number; the other one where one is NaN.
WEFT_INLINE float larger(float a, float b) {
  float y;
  asm("max.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

}  // namespace weft::ptx
