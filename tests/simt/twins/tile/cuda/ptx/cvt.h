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

}  // namespace weft::ptx
