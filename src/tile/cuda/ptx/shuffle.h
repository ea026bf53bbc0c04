// What the lanes of a warp tell each other; all of them call. They order no memory.
#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

// The value of lane ^ mask.
WEFT_INLINE u32 shuffle_xor(u32 x, int mask) {
  u32 y;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(y) : "r"(x), "r"(mask));
  return y;
}
// The value of lane `from`.
WEFT_INLINE u32 shuffle(u32 x, int from) {
  u32 y;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(y) : "r"(x), "r"(from));
  return y;
}
template <class T>
WEFT_INLINE T* shuffle(T* x, int from) {
  const u64 bits = reinterpret_cast<u64>(x);
  const u32 low = shuffle(static_cast<u32>(bits), from), high = shuffle(static_cast<u32>(bits >> 32), from);
  return reinterpret_cast<T*>(static_cast<u64>(high) << 32 | low);
}
// The same within `width` neighbours, a power of 2: `from` counts from their first one.
template <int width>
WEFT_INLINE u32 shuffle_among(u32 x, int from) {
  u32 y;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, %3, 0xffffffff;"
               : "=r"(y)
               : "r"(x), "r"(from), "n"((32 - width) << 8 | 0x1f));
  return y;
}
template <int width, class T>
WEFT_INLINE T* shuffle_among(T* x, int from) {
  const u64 bits = reinterpret_cast<u64>(x);
  const u32 low = shuffle_among<width>(static_cast<u32>(bits), from),
            high = shuffle_among<width>(static_cast<u32>(bits >> 32), from);
  return reinterpret_cast<T*>(static_cast<u64>(high) << 32 | low);
}
WEFT_INLINE float shuffle_xor(float x, int mask) { return __uint_as_float(shuffle_xor(__float_as_uint(x), mask)); }
WEFT_INLINE float shuffle(float x, int from) { return __uint_as_float(shuffle(__float_as_uint(x), from)); }
// The least that any lane has.
WEFT_INLINE int least_of_lanes(int x) {
#if WEFT_SM >= 80
  int y;
  asm volatile("redux.sync.min.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
#else
  WEFT_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) {
    const int y = static_cast<int>(shuffle_xor(static_cast<u32>(x), mask));
    x = y < x ? y : x;
  }
  return x;
#endif
}
// Bit i: the condition of lane i.
WEFT_INLINE u32 ballot(bool condition) {
  u32 bits;
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\nvote.sync.ballot.b32 %0, p, 0xffffffff;\n}"
               : "=r"(bits)
               : "r"(static_cast<u32>(condition)));
  return bits;
}

}  // namespace weft::ptx
