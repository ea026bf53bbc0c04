// Numbers of 8 and 4 bits in a word of memory as pairs of 16-bit floats, exactly: what stands at the lowest or highest
// bits of such a float is a number already, less a constant or by a power of two, and one multiply-add makes it right.
//
//   u32 pairs[kPairs<int4x2>];
//   Pairs<int4x2, bf16>::unpack(word, pairs);   // pair i: numbers i and i + 4 of the word's 8
//
// Instructions for a word, shifts among them:
//
//                  int4 (8 numbers)   int8 (4)   e4m3 (4)   e5m2 (4)
//   to bf16                      11          7          9          9
//   to fp16                      11          5          9          3
//
// Codes of fp8 that are NaN or infinite become other numbers: who multiplies them looks for such first (specials).
#pragma once

#include "tile/cuda/convert.h"

namespace weft::tile {

// Pairs of a word: number i in the low half of pair i, number i + kPairs in the high one.
template <class Stored>
inline constexpr int kPairs = kPerWord<Stored> / 2;

template <class Stored, class T>
struct Pairs;

// What is stored as it is multiplied.
template <class T>
struct Pairs<T, T> {
  static_assert(sizeof(T) == 2);
  WEFT_INLINE static void unpack(u32 word, u32 (&pairs)[1]) { pairs[0] = word; }
};

// Both halves of a pair.
constexpr u32 in_both(u32 half) { return half * 0x10001u; }

// fp8 that has a float's sign and, kShift bits further down, its exponent and mantissa, but for the bias: kFactor.
template <int kShift, u32 kMask>
struct Fp8 {
  // Of bytes 1 and 3.
  WEFT_INLINE static u32 odd_pair(u32 word) {
    return ptx::and_or(word, in_both(0x8000u), word >> kShift & in_both(kMask));
  }
  template <class Scale>
  WEFT_INLINE static void unpack(u32 word, u32 (&pairs)[2], const Scale& scaled) {
    pairs[0] = scaled(odd_pair(word << 8));
    pairs[1] = scaled(odd_pair(word));
  }
};

template <>
struct Pairs<fp8_e4m3, fp16> {
  WEFT_INLINE static void unpack(u32 word, u32 (&pairs)[2]) {
    Fp8<1, 0x3f80u>::unpack(word, pairs, [](u32 pair) {
      return ptx::multiply_add_fp16x2(pair, in_both(0x5c00u), in_both(0x8000u));  // 2^8, -0
    });
  }
};
template <>
struct Pairs<fp8_e5m2, fp16> {
  WEFT_INLINE static void unpack(u32 word, u32 (&pairs)[2]) {
    pairs[0] = word << 8 & in_both(0xff00u);
    pairs[1] = word & in_both(0xff00u);
  }
};
// From 1,024 on the lowest bits of fp16 count in ones.
template <>
struct Pairs<signed char, fp16> {
  WEFT_INLINE static void unpack(u32 word, u32 (&pairs)[2]) {
    WEFT_UNROLL
    for (int i = 0; i < 2; ++i)
      pairs[i] = ptx::multiply_add_fp16x2(ptx::and_xor(word >> 8 * i, in_both(0xffu), in_both(0x6480u)),
                                          in_both(0x3c00u), in_both(0xe480u));  // 1, -(1,024 + 128)
  }
};
template <>
struct Pairs<int4x2, fp16> {
  WEFT_INLINE static void unpack(u32 word, u32 (&pairs)[4]) {
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i)
      pairs[i] = ptx::multiply_add_fp16x2(ptx::and_xor(word >> 4 * i, in_both(0xfu), in_both(0x6408u)),
                                          in_both(0x3c00u), in_both(0xe408u));  // 1, -(1,024 + 8)
  }
};

#if WEFT_SM >= 80
template <>
struct Pairs<fp8_e4m3, bf16> {
  WEFT_INLINE static void unpack(u32 word, u32 (&pairs)[2]) {
    Fp8<4, 0x7f0u>::unpack(word, pairs, [](u32 pair) {
      return ptx::multiply_add_bf16x2(pair, in_both(0x7b80u), in_both(0x8000u));  // 2^120, -0
    });
  }
};
template <>
struct Pairs<fp8_e5m2, bf16> {
  WEFT_INLINE static void unpack(u32 word, u32 (&pairs)[2]) {
    Fp8<3, 0xfe0u>::unpack(word, pairs, [](u32 pair) {
      return ptx::multiply_add_bf16x2(pair, in_both(0x7780u), in_both(0x8000u));  // 2^112, -0
    });
  }
};

// The registers of a product of 16 rows and columns from the integers of a lane.

// Integers of 4 bits less kOffset, in one word: number i of the low halves at bit 4 i, of the high halves 16 above. As
// the lowest bits of a bf16 number from 128 on they count in ones. kFlipped: bits that count the other way.
template <int kOffset, u32 kFlipped = 0>
struct Nibbles {
  static constexpr int kWords = 1;
  WEFT_INLINE static void unpack(const u32* words, u32 (&a)[4]) {
    static_assert(kOffset >= 0 && kOffset <= 15);
    constexpr u32 kOne = 0x3f803f80u, kBack = (0xc300u + kOffset) * 0x10001u;  // -(128 + kOffset)
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i)
      a[i] = ptx::multiply_add_bf16x2(ptx::and_xor(words[0] >> 4 * i, 0x000f000fu, in_both(0x4300u + kFlipped)), kOne,
                                      kBack);
  }
};
// Two's complement of 8 bits, in two words: registers 2 w and 2 w + 1 have bytes 0 and 2, and 1 and 3, of word w.
struct Int8s {
  static constexpr int kWords = 2;
  WEFT_INLINE static void unpack(const u32* words, u32 (&a)[4]) {
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) a[i] = pair(words[i / 2] >> 8 * (i % 2));
  }
  // Of bytes 0 and 2: their lowest 7 bits and the highest one become two bf16 numbers from 128 on; the difference is
  // the integer.
  WEFT_INLINE static u32 pair(u32 bytes) {
    constexpr u32 kMinusOne = 0xbf80bf80u;
    return ptx::multiply_add_bf16x2(ptx::and_or(bytes, 0x00800080u, 0x43004300u), kMinusOne,
                                    ptx::and_or(bytes, 0x007f007fu, 0x43004300u));
  }
};
template <>
struct Pairs<signed char, bf16> {
  WEFT_INLINE static void unpack(u32 word, u32 (&pairs)[2]) {
    pairs[0] = Int8s::pair(word);
    pairs[1] = Int8s::pair(word >> 8);
  }
};
template <>
struct Pairs<int4x2, bf16> {
  WEFT_INLINE static void unpack(u32 word, u32 (&pairs)[4]) { Nibbles<8, 8>::unpack(&word, pairs); }
};
#endif

// Of types with codes that are NaN or infinite: the highest bit of each byte of a word that is one; other bits are any.
template <class Stored>
inline constexpr bool kHasSpecials = false;
template <>
inline constexpr bool kHasSpecials<fp8_e4m3> = true;
template <>
inline constexpr bool kHasSpecials<fp8_e5m2> = true;

template <class Stored>
WEFT_INLINE u32 specials(u32 word) = delete;
template <>
WEFT_INLINE u32 specials<fp8_e4m3>(u32 word) {
  return (word & 0x7f7f7f7fu) + 0x01010101u;
}
template <>
WEFT_INLINE u32 specials<fp8_e5m2>(u32 word) {
  return (word & 0x7c7c7c7cu) + 0x04040404u;
}

}  // namespace weft::tile
