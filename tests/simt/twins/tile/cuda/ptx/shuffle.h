#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE u32 shuffle_xor(u32 x, int mask) { return simt::shuffle_xor(x, mask); }
WEFT_INLINE u32 shuffle(u32 x, int from) { return simt::shuffle(x, from); }
WEFT_INLINE float shuffle_xor(float x, int mask) {
  return __builtin_bit_cast(float, simt::shuffle_xor(__builtin_bit_cast(u32, x), mask));
}
WEFT_INLINE float shuffle(float x, int from) {
  return __builtin_bit_cast(float, simt::shuffle(__builtin_bit_cast(u32, x), from));
}
WEFT_INLINE u32 ballot(bool condition) { return simt::ballot(condition); }

}  // namespace weft::ptx
