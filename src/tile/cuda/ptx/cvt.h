// Conversions of the hardware: two floats to two 16-bit ones, `low` in the low half; fp16 pairs to floats; fp8 to fp16.
#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE u32 to_fp16x2(float low, float high) {
#if WEFT_SM >= 80
  u32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
#else
  u16 l, h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(l) : "f"(low));
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(high));
  return static_cast<u32>(h) << 16 | l;
#endif
}
// To nearest, ties to even; NaN becomes 0x7fff.
WEFT_INLINE u32 to_bf16x2(float low, float high) {
#if WEFT_SM >= 80
  u32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
#else
  const auto round = [](float x) -> u32 {
    const u32 bits = __float_as_uint(x);
    return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  };
  return round(high) << 16 | round(low);
#endif
}
WEFT_INLINE float from_fp16(u16 bits) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
  return y;
}
#if WEFT_SM >= 89
// Four fp8 numbers exactly, NaN among them: two pairs of fp16.
WEFT_INLINE void from_e4m3x4(u32 word, u32& low, u32& high) {
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
      : "=r"(low), "=r"(high)
      : "r"(word));
}
#endif

}  // namespace weft::ptx
