// Lanes of 32 bits as two integers of 16 or four of 8: shifts, orders, products.
#pragma once

#include "tile/cpu/vec.h"

namespace weft::tile::WEFT_ISA_NAME {

typedef short I16Pairs __attribute__((vector_size(4 * WEFT_LANES)));
typedef unsigned short U16Pairs __attribute__((vector_size(4 * WEFT_LANES)));

// Both halves of each lane.
template <int n>
WEFT_INLINE U32 shift_left_i16(U32 v) {
  return reinterpret_cast<U32>(reinterpret_cast<U16Pairs>(v) << n);
}
template <int n>
WEFT_INLINE U32 shift_right_i16(U32 v) {
  return reinterpret_cast<U32>(reinterpret_cast<I16Pairs>(v) >> n);
}
template <int n>
WEFT_INLINE U32 shift_right_u16(U32 v) {
  return reinterpret_cast<U32>(reinterpret_cast<U16Pairs>(v) >> n);
}

// acc plus two products of int16, modulo 2^32.
#if WEFT_LANES == 16
WEFT_INLINE I32 dot_shorts(I32 acc, U32 a, U32 b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
}
#elif WEFT_LANES == 8
WEFT_INLINE I32 dot_shorts(I32 acc, U32 a, U32 b) {
  return acc + __builtin_ia32_pmaddwd256(reinterpret_cast<I16Pairs>(a), reinterpret_cast<I16Pairs>(b));
}
#elif defined(__SSE2__)
WEFT_INLINE I32 dot_shorts(I32 acc, U32 a, U32 b) {
  return acc + __builtin_ia32_pmaddwd128(reinterpret_cast<I16Pairs>(a), reinterpret_cast<I16Pairs>(b));
}
#else
WEFT_INLINE I32 dot_shorts(I32 acc, U32 a, U32 b) {
  const auto low = [](U32 v) { return reinterpret_cast<I32>(v << 16) >> 16; };
  const auto high = [](U32 v) { return reinterpret_cast<I32>(v) >> 16; };
  return acc + low(a) * low(b) + high(a) * high(b);
}
#endif

#if WEFT_LANES == 8
// Each half of a lane of acc plus two products of unsigned bytes of a with signed ones of b: int16 that saturate.
WEFT_INLINE U32 dot_bytes_i16(U32 acc, U32 a, U32 b) {
  typedef char Char32 __attribute__((vector_size(32)));
  const I16Pairs products = __builtin_ia32_pmaddubsw256(reinterpret_cast<Char32>(a), reinterpret_cast<Char32>(b));
  return reinterpret_cast<U32>(reinterpret_cast<I16Pairs>(acc) + products);
}
// The sum of both halves of each lane.
WEFT_INLINE I32 sum_shorts(U32 v) { return dot_shorts(I32{}, v, broadcast(0x00010001u)); }
#elif WEFT_LANES == 16
#define WEFT_HAS_BYTE_DOT 1
// acc plus four products of unsigned bytes of a with signed ones of b, modulo 2^32.
WEFT_INLINE I32 dot_bytes(I32 acc, U32 a, U32 b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
}
// (x & a) ^ b, which compilers make two instructions of.
WEFT_INLINE U32 and_xor(U32 x, unsigned a, unsigned b) {
  return reinterpret_cast<U32>(__builtin_ia32_pternlogd512_mask(
      reinterpret_cast<I32>(x), reinterpret_cast<I32>(broadcast(a)), reinterpret_cast<I32>(broadcast(b)), 0x6a, -1));
}
// Of each 16 bytes of a and b, the first or the last 8, in turns.
typedef char Char64 __attribute__((vector_size(64)));
typedef short Short32 __attribute__((vector_size(64)));
WEFT_INLINE U32 interleave_low_bytes(U32 a, U32 b) {
  return reinterpret_cast<U32>(
      __builtin_ia32_punpcklbw512_mask(reinterpret_cast<Char64>(a), reinterpret_cast<Char64>(b), Char64{}, -1));
}
WEFT_INLINE U32 interleave_high_bytes(U32 a, U32 b) {
  return reinterpret_cast<U32>(
      __builtin_ia32_punpckhbw512_mask(reinterpret_cast<Char64>(a), reinterpret_cast<Char64>(b), Char64{}, -1));
}
WEFT_INLINE U32 interleave_low_shorts(U32 a, U32 b) {
  return reinterpret_cast<U32>(
      __builtin_ia32_punpcklwd512_mask(reinterpret_cast<Short32>(a), reinterpret_cast<Short32>(b), Short32{}, -1));
}
WEFT_INLINE U32 interleave_high_shorts(U32 a, U32 b) {
  return reinterpret_cast<U32>(
      __builtin_ia32_punpckhwd512_mask(reinterpret_cast<Short32>(a), reinterpret_cast<Short32>(b), Short32{}, -1));
}
#endif

}  // namespace weft::tile::WEFT_ISA_NAME
