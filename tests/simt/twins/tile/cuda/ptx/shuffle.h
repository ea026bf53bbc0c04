#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE u32 shuffle_xor(u32 x, int mask) { return simt::shuffle_xor(x, mask); }
WEFT_INLINE u32 shuffle(u32 x, int from) { return simt::shuffle(x, from); }
template <class T>
WEFT_INLINE T* shuffle(T* x, int from) {
  const u64 bits = reinterpret_cast<u64>(x);
  const u32 low = shuffle(static_cast<u32>(bits), from), high = shuffle(static_cast<u32>(bits >> 32), from);
  return reinterpret_cast<T*>(static_cast<u64>(high) << 32 | low);
}
template <int width>
WEFT_INLINE u32 shuffle_among(u32 x, int from) {
  return simt::shuffle(x, simt::thread_index() % 32 / width * width + from % width);
}
template <int width, class T>
WEFT_INLINE T* shuffle_among(T* x, int from) {
  const u64 bits = reinterpret_cast<u64>(x);
  const u32 low = shuffle_among<width>(static_cast<u32>(bits), from),
            high = shuffle_among<width>(static_cast<u32>(bits >> 32), from);
  return reinterpret_cast<T*>(static_cast<u64>(high) << 32 | low);
}
WEFT_INLINE float shuffle_xor(float x, int mask) {
  return __builtin_bit_cast(float, simt::shuffle_xor(__builtin_bit_cast(u32, x), mask));
}
WEFT_INLINE float shuffle(float x, int from) {
  return __builtin_bit_cast(float, simt::shuffle(__builtin_bit_cast(u32, x), from));
}
WEFT_INLINE u32 ballot(bool condition) { return simt::ballot(condition); }
WEFT_INLINE int least_of_lanes(int x) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const int y = static_cast<int>(shuffle_xor(static_cast<u32>(x), mask));
    x = y < x ? y : x;
  }
  return x;
}

}  // namespace weft::ptx
