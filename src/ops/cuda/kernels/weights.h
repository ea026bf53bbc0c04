// Weights as a card keeps them, and how a thread reads them. A row is made of pieces of 16 bytes, and one load of a
// thread is one piece; scales lie in planes of their own, so that a warp's loads of either have no gaps.
//
//   Q4_1 piece;
//   piece.load(planes, row * pieces_of_a_row + i);   // weights 32 i to 32 i + 31 of the row
//   piece.numbers(g, q);                             // 4 g to 4 g + 3 of them
//   w = piece.scale(4 * g / (kWeights / kScales)) * q[0] + piece.least();
//
// With b a block of 32 weights of a row:
//   q4_0, q4_1, q4_k  quants: word j of the piece has weights 4j to 4j + 3 in the low nibbles of its bytes, 16 more in
//                     the high ones
//   q5_0              and in high[b] the fifth bits: that of weight 4g + i is bit 8i + g
//   q6_k              and in high[b] two words of upper bits: those of weight 4g + i are bits 8i + 2 (g % 4) of word
//                     g / 4
//   q8_0              quants: two pieces of 16 bytes a block
//   scales            q4_0, q5_0, q8_0: d in fp16; q4_1: d and m; q4_k: steps of 8 bits of scale and minimum; q6_k: of
//                     the block's two halves
//   supers            one for 8 blocks: of q4_k d and that of the minima, in fp16, of q6_k d
//   f32, f16, bf16    quants: 4 or 8 weights a piece, the last one of a row filled up with zeros
#pragma once

#include "ops/cuda/kernels/args.h"
#include "tile/cuda/convert.h"

namespace weft::ops {

namespace weights {

// Byte i of a word of numbers from 0 to 255, less `offset`: 2^23 + byte is exact.
WEFT_INLINE float byte_of(u32 word, int i, float offset) {
  return ptx::from_bits(0x4b000000u | (word >> (8 * i) & 0xffu)) - (8388608.f + offset);
}
// The four numbers of group g of a block of nibbles, one a byte.
WEFT_INLINE u32 nibbles(const u32 (&word)[4], int g) { return word[g % 4] >> (g < 4 ? 0 : 4) & 0x0f0f0f0fu; }

template <class T>
WEFT_INLINE T at(const void* plane, i64 index) {
  return static_cast<const T*>(plane)[index];
}
WEFT_INLINE float low_half(u32 pair) { return ptx::from_fp16(static_cast<u16>(pair)); }
WEFT_INLINE float high_half(u32 pair) { return ptx::from_fp16(static_cast<u16>(pair >> 16)); }

}  // namespace weights

struct OneScale {
  static constexpr int kScales = 1;  // of a piece, each for as many weights
};
struct NoLeast {
  static constexpr bool kHasLeast = false;
  WEFT_INLINE float least() const { return 0.f; }
};

// All quantised types but q8_0 have 32 weights in a piece.
struct Nibbles {
  static constexpr int kWeights = 32;
  Bytes16 quants;
  WEFT_INLINE void load_quants(const WeightPlanes& w, i64 piece) { quants = weights::at<Bytes16>(w.quants, piece); }
};

struct Q4_0 : Nibbles, OneScale, NoLeast {
  u16 d;
  WEFT_INLINE void load(const WeightPlanes& w, i64 piece) {
    load_quants(w, piece);
    d = weights::at<u16>(w.scales, piece);
  }
  WEFT_INLINE void numbers(int g, float (&q)[4]) const {
    const u32 bytes = weights::nibbles(quants.word, g);
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) q[i] = weights::byte_of(bytes, i, 8.f);
  }
  WEFT_INLINE float scale(int) const { return ptx::from_fp16(d); }
};

struct Q4_1 : Nibbles, OneScale {
  static constexpr bool kHasLeast = true;
  u32 dm;
  WEFT_INLINE void load(const WeightPlanes& w, i64 piece) {
    load_quants(w, piece);
    dm = weights::at<u32>(w.scales, piece);
  }
  WEFT_INLINE void numbers(int g, float (&q)[4]) const {
    const u32 bytes = weights::nibbles(quants.word, g);
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) q[i] = weights::byte_of(bytes, i, 0.f);
  }
  WEFT_INLINE float scale(int) const { return weights::low_half(dm); }
  WEFT_INLINE float least() const { return weights::high_half(dm); }
};

struct Q5_0 : Nibbles, OneScale, NoLeast {
  u32 fifth;
  u16 d;
  WEFT_INLINE void load(const WeightPlanes& w, i64 piece) {
    load_quants(w, piece);
    fifth = weights::at<u32>(w.high, piece);
    d = weights::at<u16>(w.scales, piece);
  }
  WEFT_INLINE void numbers(int g, float (&q)[4]) const {
    const u32 bytes = weights::nibbles(quants.word, g) | (fifth >> g & 0x01010101u) << 4;
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) q[i] = weights::byte_of(bytes, i, 16.f);
  }
  WEFT_INLINE float scale(int) const { return ptx::from_fp16(d); }
};

struct Q8_0 : OneScale, NoLeast {
  static constexpr int kWeights = 16;
  Bytes16 quants;
  u16 d;
  WEFT_INLINE void load(const WeightPlanes& w, i64 piece) {
    quants = weights::at<Bytes16>(w.quants, piece);
    d = weights::at<u16>(w.scales, piece / 2);
  }
  WEFT_INLINE void numbers(int g, float (&q)[4]) const {
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) q[i] = weights::byte_of(quants.word[g] ^ 0x80808080u, i, 128.f);
  }
  WEFT_INLINE float scale(int) const { return ptx::from_fp16(d); }
};

struct Q4_K : Nibbles, OneScale {
  static constexpr bool kHasLeast = true;
  u32 dm;
  u16 steps;
  WEFT_INLINE void load(const WeightPlanes& w, i64 piece) {
    load_quants(w, piece);
    steps = weights::at<u16>(w.scales, piece);
    dm = weights::at<u32>(w.supers, piece / 8);
  }
  WEFT_INLINE void numbers(int g, float (&q)[4]) const {
    const u32 bytes = weights::nibbles(quants.word, g);
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) q[i] = weights::byte_of(bytes, i, 0.f);
  }
  WEFT_INLINE float scale(int) const { return weights::low_half(dm) * static_cast<float>(steps & 0xff); }
  WEFT_INLINE float least() const { return -weights::high_half(dm) * static_cast<float>(steps >> 8); }
};

struct Q6_K : Nibbles, NoLeast {
  static constexpr int kScales = 2;
  u32 upper[2];
  u16 steps, d;
  WEFT_INLINE void load(const WeightPlanes& w, i64 piece) {
    load_quants(w, piece);
    upper[0] = weights::at<u32>(w.high, 2 * piece);
    upper[1] = weights::at<u32>(w.high, 2 * piece + 1);
    steps = weights::at<u16>(w.scales, piece);
    d = weights::at<u16>(w.supers, piece / 8);
  }
  WEFT_INLINE void numbers(int g, float (&q)[4]) const {
    const u32 bytes = weights::nibbles(quants.word, g) | (upper[g / 4] >> (2 * (g % 4)) & 0x03030303u) << 4;
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) q[i] = weights::byte_of(bytes, i, 32.f);
  }
  WEFT_INLINE float scale(int half) const {
    const auto step = static_cast<signed char>(half == 0 ? steps & 0xff : steps >> 8);
    return ptx::from_fp16(d) * static_cast<float>(step);
  }
};

// float, fp16 or bf16.
template <class T>
struct Floats : OneScale, NoLeast {
  static constexpr int kWeights = 16 / static_cast<int>(sizeof(T));
  Bytes16 quants;
  WEFT_INLINE void load(const WeightPlanes& w, i64 piece) { quants = weights::at<Bytes16>(w.quants, piece); }
  WEFT_INLINE void numbers(int g, float (&q)[4]) const {
    if constexpr (sizeof(T) == 4) {
      WEFT_UNROLL
      for (int i = 0; i < 4; ++i) q[i] = ptx::from_bits(quants.word[i]);
    } else {
      WEFT_UNROLL
      for (int i = 0; i < 2; ++i) {
        float pair[2];
        tile::unpack<T>(quants.word[2 * g + i], pair);
        q[2 * i] = pair[0];
        q[2 * i + 1] = pair[1];
      }
    }
  }
  WEFT_INLINE float scale(int) const { return 1.f; }
};
using F32 = Floats<float>;
using F16 = Floats<fp16>;
using BF16 = Floats<bf16>;

}  // namespace weft::ops
