#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE u32 to_fp16x2(float low, float high) {
  return static_cast<u32>(simt::to_fp16(high)) << 16 | simt::to_fp16(low);
}
WEFT_INLINE u32 to_bf16x2(float low, float high) {
  const auto round = [](float x) -> u32 {
    const u32 bits = __builtin_bit_cast(u32, x);
    return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  };
  return round(high) << 16 | round(low);
}
WEFT_INLINE float from_fp16(u16 bits) { return simt::from_fp16(bits); }
#if WEFT_SM >= 89
WEFT_INLINE void from_e4m3x4(u32 word, u32& low, u32& high) {
  // Their exponent is fp16's, 8 less; 0x7fff as the hardware's NaN.
  const auto half = [&](int i) -> u32 {
    const u32 code = word >> 8 * i & 0xffu, size = code & 0x7fu;
    const float value = simt::from_fp16(static_cast<u16>(size << 7)) * 256.f;
    return size == 0x7fu ? 0x7fffu : (code & 0x80u) << 8 | simt::to_fp16(value);
  };
  low = half(0) | half(1) << 16;
  high = half(2) | half(3) << 16;
}
#endif

}  // namespace weft::ptx
