// Numbers of 8 and 4 bits in a word of memory as halves of products in fp16, where they stand at the lowest bits as
// they are: fp16 counts there in 2^-24 and from 0 on, so that integers need no arithmetic, only something added that
// makes them positive. What that adds to a sum of products is known without them.
//
//   u32 pairs[Halves<int4x2>::kPairs];
//   Halves<int4x2>::of_row(word, pairs);       // a key's: pair i has numbers i and i + 4 of the word's 8
//   Halves<int4x2>::of_two_rows(word, pairs);  // values: the word has 4 columns of two rows, and pair i column i
//
// Instructions for a word, and how many of them the integer unit does, which takes two cycles for each:
//
//                  int4 (8 numbers)   int8 (4)   e4m3 (4)      e5m2 (4)
//   keys                          5          3          2             2
//   values                        5          3          3             2
//   before sm_89                                        5 and 2 multiply-adds
//
// Before sm_89 the code of e4m3 that is NaN becomes another number: who multiplies looks for such first (specials).
#pragma once

#include "tile/cuda/convert.h"

namespace weft::tile {

// Both halves of a pair.
constexpr u32 in_both(u32 half) { return half * 0x10001u; }

// Of a power of two, where that and its reciprocal are normal numbers.
WEFT_INLINE float reciprocal_of_power(float power) { return ptx::from_bits(0x7f000000u - ptx::to_bits(power)); }

// A number is kUnit times its half, less kOffset; of odd pairs the half is 2^kOfOddPairs times as large. kSplit: which
// two of a row's numbers a pair has, i and i + kPairs, or else 2 i and 2 i + 1. kLosesSpecials: codes that are no
// finite number become one.
template <class Stored>
struct Halves {
  static_assert(sizeof(Stored) == 2, "what is multiplied as it is");
  static constexpr int kPairs = 1, kOffset = 0, kOfOddPairs = 0;
  static constexpr float kUnit = 1;
  static constexpr bool kSplit = false, kLosesSpecials = false;
  WEFT_INLINE static void of_row(u32 word, u32 (&pairs)[1]) { pairs[0] = word; }
  WEFT_INLINE static void of_two_rows(u32 word, u32 (&pairs)[1]) { pairs[0] = word; }
};

template <>
struct Halves<signed char> {
  static constexpr int kPairs = 2, kOffset = 128, kOfOddPairs = 0;
  static constexpr float kUnit = 0x1p24f;
  static constexpr bool kSplit = true, kLosesSpecials = false;
  WEFT_INLINE static void of_row(u32 word, u32 (&pairs)[2]) {
    WEFT_UNROLL
    for (int i = 0; i < 2; ++i) pairs[i] = ptx::and_xor(word >> 8 * i, in_both(0xffu), in_both(0x80u));
  }
  WEFT_INLINE static void of_two_rows(u32 word, u32 (&pairs)[2]) { of_row(word, pairs); }
};

template <>
struct Halves<int4x2> {
  static constexpr int kPairs = 4, kOffset = 8, kOfOddPairs = 4;
  static constexpr float kUnit = 0x1p24f;
  static constexpr bool kSplit = true, kLosesSpecials = false;
  WEFT_INLINE static void of_row(u32 word, u32 (&pairs)[4]) {
    WEFT_UNROLL
    for (int i = 0; i < 4; i += 2) {
      pairs[i] = ptx::and_xor(word >> 4 * i, in_both(0xfu), in_both(0x8u));
      pairs[i + 1] = ptx::and_xor(word >> 4 * i, in_both(0xf0u), in_both(0x80u));
    }
  }
  WEFT_INLINE static void of_two_rows(u32 word, u32 (&pairs)[4]) { of_row(word, pairs); }
};

// fp16 with three bits fewer of mantissa.
template <>
struct Halves<fp8_e5m2> {
  static constexpr int kPairs = 2, kOffset = 0, kOfOddPairs = 0;
  static constexpr float kUnit = 1;
  static constexpr bool kSplit = true, kLosesSpecials = false;
  WEFT_INLINE static void of_row(u32 word, u32 (&pairs)[2]) {
    pairs[0] = ptx::permute(word, 0, 0x2404u);
    pairs[1] = word & in_both(0xff00u);
  }
  WEFT_INLINE static void of_two_rows(u32 word, u32 (&pairs)[2]) { of_row(word, pairs); }
};

#if WEFT_SM >= 89
template <>
struct Halves<fp8_e4m3> {
  static constexpr int kPairs = 2, kOffset = 0, kOfOddPairs = 0;
  static constexpr float kUnit = 1;
  static constexpr bool kSplit = false, kLosesSpecials = false;
  WEFT_INLINE static void of_row(u32 word, u32 (&pairs)[2]) { ptx::from_e4m3x4(word, pairs[0], pairs[1]); }
  WEFT_INLINE static void of_two_rows(u32 word, u32 (&pairs)[2]) { of_row(ptx::permute(word, 0, 0x3120u), pairs); }
};
#else
// One bit further down it has fp16's sign, exponent and mantissa, but for the bias of the exponent, which is 8 less.
template <>
struct Halves<fp8_e4m3> {
  static constexpr int kPairs = 2, kOffset = 0, kOfOddPairs = 0;
  static constexpr float kUnit = 0x1p8f;
  static constexpr bool kSplit = true, kLosesSpecials = true;
  WEFT_INLINE static void of_row(u32 word, u32 (&pairs)[2]) {
    WEFT_UNROLL
    for (int i = 0; i < 2; ++i) {
      const u32 odd = i == 0 ? word << 8 : word;  // bytes 1 and 3
      pairs[i] = ptx::and_or(odd, in_both(0x8000u), odd >> 1 & in_both(0x3f80u));
    }
  }
  WEFT_INLINE static void of_two_rows(u32 word, u32 (&pairs)[2]) { of_row(word, pairs); }
};
#endif

#if WEFT_SM >= 80
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

// Numbers of 8 bits as they follow each other in a word, exactly as two pairs of bf16: eight instructions each.
WEFT_INLINE u32 bf16_of_fp16(u32 pair) {
  return ptx::to_bf16x2(ptx::from_fp16(static_cast<u16>(pair)), ptx::from_fp16(static_cast<u16>(pair >> 16)));
}
template <class Stored>
WEFT_INLINE void to_bf16(u32 word, u32 (&pairs)[2]);
template <>
WEFT_INLINE void to_bf16<signed char>(u32 word, u32 (&pairs)[2]) {
  pairs[0] = Int8s::pair(ptx::permute(word, 0, 0x4140u));
  pairs[1] = Int8s::pair(ptx::permute(word, 0, 0x4342u));
}
template <>
WEFT_INLINE void to_bf16<fp8_e5m2>(u32 word, u32 (&pairs)[2]) {
  pairs[0] = bf16_of_fp16(ptx::permute(word, 0, 0x1404u));
  pairs[1] = bf16_of_fp16(ptx::permute(word, 0, 0x3424u));
}
#if WEFT_SM >= 89
template <>
WEFT_INLINE void to_bf16<fp8_e4m3>(u32 word, u32 (&pairs)[2]) {
  u32 low, high;
  ptx::from_e4m3x4(word, low, high);
  pairs[0] = bf16_of_fp16(low);
  pairs[1] = bf16_of_fp16(high);
}
#endif
#endif

// Types with codes that are NaN or infinite.
template <class Stored>
inline constexpr bool kHasSpecials = false;
template <>
inline constexpr bool kHasSpecials<fp8_e4m3> = true;
template <>
inline constexpr bool kHasSpecials<fp8_e5m2> = true;

// Of e4m3: the highest bit of each byte of a word that is NaN; other bits are any.
WEFT_INLINE u32 specials(u32 word) { return (word & 0x7f7f7f7fu) + 0x01010101u; }

}  // namespace weft::tile
