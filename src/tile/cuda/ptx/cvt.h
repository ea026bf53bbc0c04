// Conversions of the hardware: two floats to two 16-bit ones, `low` in the low half; fp16 pairs to floats.
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

}  // namespace weft::ptx
