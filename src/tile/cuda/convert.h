// Elements of every type of tensor as floats and back, and pairs of them as the halves that products take.
//
//   float x[4];
//   unpack<fp8_e4m3>(word, x);             // the four elements of 32 bits
//   const u32 pair = pack<bf16>(x[0], x[1]);
#pragma once

#include "tile/cuda/element.h"
#include "tile/cuda/ptx/cvt.h"
#include "tile/cuda/ptx/math.h"

namespace weft::tile {

// How many elements 32 bits hold.
template <class T>
inline constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
template <>
inline constexpr int kPerWord<int4x2> = 8;

WEFT_INLINE float to_float(float x) { return x; }
WEFT_INLINE float to_float(fp16 x) { return ptx::from_fp16(x.bits); }
WEFT_INLINE float to_float(bf16 x) { return ptx::from_bits(static_cast<u32>(x.bits) << 16); }
WEFT_INLINE float to_float(signed char x) { return static_cast<float>(x); }
// fp16 with three bits fewer of mantissa.
WEFT_INLINE float to_float(fp8_e5m2 x) { return ptx::from_fp16(static_cast<u16>(x.bits << 8)); }
// Its exponent is fp16's, 8 less: subnormals become fp16's, and the product is exact. 0x7f and 0xff are NaN, and there
// is no infinity.
WEFT_INLINE float to_float(fp8_e4m3 x) {
  const u32 size = x.bits & 0x7fu, sign = static_cast<u32>(x.bits & 0x80u) << 24;
  const float value = ptx::from_fp16(static_cast<u16>(size << 7)) * 256.f;
  return size == 0x7fu ? ptx::from_bits(0x7fc00000u) : ptx::from_bits(ptx::to_bits(value) | sign);
}

// The elements of 32 bits of memory.
template <class T>
WEFT_INLINE void unpack(u32 word, float (&x)[kPerWord<T>]) {
  if constexpr (sizeof(T) == 4) {
    x[0] = ptx::from_bits(word);
  } else if constexpr (sizeof(T) == 2) {
    x[0] = to_float(T{static_cast<u16>(word)});
    x[1] = to_float(T{static_cast<u16>(word >> 16)});
  } else {
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) x[i] = to_float(T{static_cast<u8>(word >> (8 * i))});
  }
}
template <>
WEFT_INLINE void unpack<signed char>(u32 word, float (&x)[4]) {
  WEFT_UNROLL
  for (int i = 0; i < 4; ++i) x[i] = static_cast<float>(static_cast<int>(word << (24 - 8 * i)) >> 24);
}
template <>
WEFT_INLINE void unpack<int4x2>(u32 word, float (&x)[8]) {
  WEFT_UNROLL
  for (int i = 0; i < 8; ++i) x[i] = static_cast<float>(static_cast<int>(word << (28 - 4 * i)) >> 28);
}

// Two neighbouring elements of type fp16 or bf16, rounded to nearest, ties to even.
template <class T>
WEFT_INLINE u32 pack(float low, float high);
template <>
WEFT_INLINE u32 pack<fp16>(float low, float high) {
  return ptx::to_fp16x2(low, high);
}
template <>
WEFT_INLINE u32 pack<bf16>(float low, float high) {
  return ptx::to_bf16x2(low, high);
}

// One element of an output.
WEFT_INLINE void store(float* to, float x) { *to = x; }
WEFT_INLINE void store(fp16* to, float x) { to->bits = static_cast<u16>(ptx::to_fp16x2(x, 0.f)); }
WEFT_INLINE void store(bf16* to, float x) { to->bits = static_cast<u16>(ptx::to_bf16x2(x, 0.f)); }

}  // namespace weft::tile
