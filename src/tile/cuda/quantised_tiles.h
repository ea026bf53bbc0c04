// Weights of 8 and 4 bits as matvec.h multiplies them. A piece is 16 rows by kCols columns: first all integers, in
// fragments and so that a lane reads 16 bytes at once, then fp16 scales of each row's groups of columns.
//
//   Q4Tile, 64 columns    lane 0: 16 bytes | lane 1 ... lane 31     word i of a lane: its 8 integers of fragment i
//                         g = 0: scales | g = 1 ... g = 7           of each group: of rows g and g + 8
//
// Integers become bf16 exactly, products are added up in fp32 over a group, and the sum is multiplied by the scale; a
// group's least value by the sum of its x. Instructions of a warp for a piece with 8 rows of x, as NVRTC 12.9 makes
// them for sm_90a:
//
//                    loads, x   integers  products  scales   loop    all    bytes    bytes an instruction
//   Q4Tile               2, 4         44         4      12     10     76      576                     7.6
//   Q4WithLeastTile      2, 4         44         8      24     15     97      640                     6.6
//   Q4Group128Tile       3, 8         88         8       6     10    123     1056                     8.6
//   Q8Tile               3, 4         56         4      12      9     88     1088                    12.4
//
// A multiprocessor of an H100 gets 15 bytes a cycle, in which it issues 4 instructions: these are 2.3 of them at most.
#pragma once

#include "tile/cuda/few_bits.h"
#include "tile/cuda/matvec.h"
#include "tile/cuda/ptx/cvt.h"
#include "tile/cuda/ptx/math.h"

namespace weft::tile {

#if WEFT_SM >= 80
template <int words>
struct alignas(4 * words) Words {
  u32 word[words];
};

// kGroups: groups of columns with a scale each; kHasLeast: and a least value, to which the scaled integer is added.
template <class Integers, int kColumns, int kGroups, bool kHasLeast>
struct QuantisedTile {
  static constexpr int kCols = kColumns, kFragments = kCols / 16, kOfGroup = kFragments / kGroups;
  static constexpr int kWords = kFragments * Integers::kWords;  // of a lane
  static constexpr int kScaleWords = kGroups * (kHasLeast ? 2 : 1);
  static constexpr int kIntegerBytes = 128 * kWords, kBytes = kIntegerBytes + 32 * kScaleWords;
  static_assert(kWords % 4 == 0 && kFragments % kGroups == 0);

  struct Sums {
    float of[1][1][4] = {};
    WEFT_INLINE float operator[](int i) const { return of[0][0][i]; }
  };
  // A lane's part of a piece.
  struct Loaded {
    u32 words[kWords];
    Words<kScaleWords> scales;
  };
  WEFT_INLINE static Loaded load(int lane, const u8* piece) {
    return load_at(piece + 16 * lane, piece + kIntegerBytes + 4 * kScaleWords * (lane / 4));
  }
  // The products of a piece of each band with kTiles times 8 columns of x, each the sum of kTerms numbers. x(tile,
  // term, fragment) gives the lane's 8 bytes of a fragment.
  template <int kTerms, int kBands, int kTiles, class X>
  WEFT_INLINE static void multiply_loaded(const Loaded (&pieces)[kBands], const X& x,
                                          float (&sums)[kBands][kTiles][4]) {
    multiply_pieces<8, kTerms>(pieces, x, sums);
  }

  // Two pieces at a time: what one waits for, a fragment's product behind the one before, the other covers.
  template <int kRows>
  WEFT_INLINE static void multiply(int lane, const u8* pieces, int count, const bf16* x, Sums& sums) {
    const u8* integers = pieces + 16 * lane;
    const u8* scales = pieces + kIntegerBytes + 4 * kScaleWords * (lane / 4);
    int i = 0;
    WEFT_NO_UNROLL
    for (; i + 2 <= count; i += 2, integers += 2 * kBytes, scales += 2 * kBytes, x += 2 * kCols)
      multiply_together<kRows, 2>(integers, scales, x, sums.of[0][0]);
    if (i < count) multiply_together<kRows, 1>(integers, scales, x, sums.of[0][0]);
  }

  WEFT_INLINE static void read(const u8* piece, int row, int column, float (&to)[4]) {
    const int lane = row % 8 * 4 + column % 16 / 4, half = row / 8;
    // A lane's words lie in runs of 4, those of all lanes one behind the other.
    const int first = column / 16 * Integers::kWords;
    const u32* const words = reinterpret_cast<const u32*>(piece + 512 * (first / 4) + 16 * lane) + first % 4;
    u32 a[4];
    Integers::unpack(words, a);
    const u32* const scales = reinterpret_cast<const u32*>(piece + kIntegerBytes + 4 * kScaleWords * (row % 8)) +
                              column / 16 / kOfGroup * (kHasLeast ? 2 : 1);
    const float scale = ptx::from_fp16(static_cast<u16>(scales[0] >> 16 * half));
    const float least = kHasLeast ? ptx::from_fp16(static_cast<u16>(scales[kHasLeast ? 1 : 0] >> 16 * half)) : 0.f;
    WEFT_UNROLL
    for (int i = 0; i < 2; ++i) {
      const u32 two = half == 0 ? a[2 * i] : a[2 * i + 1];
      to[2 * i] = ptx::multiply_add(scale, ptx::from_bits(two << 16), least);
      to[2 * i + 1] = ptx::multiply_add(scale, ptx::from_bits(two & 0xffff0000u), least);
    }
  }

 private:
  WEFT_INLINE static Loaded load_at(const u8* integers, const u8* scales) {
    Loaded piece;
    WEFT_UNROLL
    for (int i = 0; i < kWords / 4; ++i) {
      const Bytes16 loaded = *reinterpret_cast<const Bytes16*>(integers + 512 * i);
      WEFT_UNROLL
      for (int j = 0; j < 4; ++j) piece.words[4 * i + j] = loaded.word[j];
    }
    piece.scales = *reinterpret_cast<const Words<kScaleWords>*>(scales);
    return piece;
  }
  // Neighbours in a band. Their groups' sums are added in the order of columns.
  template <int kRows, int kCount>
  WEFT_INLINE static void multiply_together(const u8* integers, const u8* scales, const bf16* x, float (&sums)[4]) {
    Loaded pieces[kCount];
    WEFT_UNROLL
    for (int i = 0; i < kCount; ++i) pieces[i] = load_at(integers + i * kBytes, scales + i * kBytes);
    float products[kCount][kGroups][4] = {}, totals[kCount][kGroups][4] = {};  // the latter: of x, in every row
    WEFT_UNROLL
    for (int f = 0; f < kFragments; ++f) WEFT_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const Bytes8 b = *reinterpret_cast<const Bytes8*>(x + i * kCols + 16 * f);
      u32 a[4];
      Integers::unpack(pieces[i].words + f * Integers::kWords, a);
      ptx::mma_m16n8k16_bf16(products[i][f / kOfGroup], a, b.word[0], b.word[1]);
      if constexpr (kHasLeast) {
        const u32 ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
        ptx::mma_m16n8k16_bf16(totals[i][f / kOfGroup], ones, b.word[0], b.word[1]);
      }
    }
    WEFT_UNROLL
    for (int i = 0; i < kCount; ++i) WEFT_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      const u32* const of_group = pieces[i].scales.word + group * (kHasLeast ? 2 : 1);
      add<kRows>(of_group[0], products[i][group], sums);
      if constexpr (kHasLeast) add<kRows>(of_group[1], totals[i][group], sums);
    }
  }
  template <int kRows, int kTerms, int kBands, int kTiles, class X>
  WEFT_INLINE static void multiply_pieces(const Loaded (&pieces)[kBands], const X& x,
                                          float (&sums)[kBands][kTiles][4]) {
    WEFT_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      float product[kBands][kTiles][4] = {}, total[kTiles][4] = {};  // the latter: of x, in every row
      WEFT_UNROLL
      for (int f = group * kOfGroup; f < (group + 1) * kOfGroup; ++f) {
        u32 a[kBands][4];
        WEFT_UNROLL
        for (int band = 0; band < kBands; ++band) Integers::unpack(pieces[band].words + f * Integers::kWords, a[band]);
        WEFT_UNROLL
        for (int term = 0; term < kTerms; ++term) WEFT_UNROLL
        for (int tile = 0; tile < kTiles; ++tile) {
          const Bytes8 b = x(tile, term, f);
          WEFT_UNROLL
          for (int band = 0; band < kBands; ++band)
            ptx::mma_m16n8k16_bf16(product[band][tile], a[band], b.word[0], b.word[1]);
          if constexpr (kHasLeast) {
            const u32 ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
            ptx::mma_m16n8k16_bf16(total[tile], ones, b.word[0], b.word[1]);
          }
        }
      }
      WEFT_UNROLL
      for (int band = 0; band < kBands; ++band) WEFT_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        const u32* const scales = pieces[band].scales.word + group * (kHasLeast ? 2 : 1);
        add<kRows>(scales[0], product[band][tile], sums[band][tile]);
        if constexpr (kHasLeast) add<kRows>(scales[1], total[tile], sums[band][tile]);
      }
    }
  }
  // factors: fp16 numbers of rows g and g + 8.
  template <int kRows>
  WEFT_INLINE static void add(u32 factors, const float (&products)[4], float (&sums)[4]) {
    const float factor[2] = {ptx::from_fp16(static_cast<u16>(factors)),
                             ptx::from_fp16(static_cast<u16>(factors >> 16))};
    WEFT_UNROLL
    for (int i = 0; i<4; i += kRows> 1 ? 1 : 2)  // a single row of x is an even column
      sums[i] = ptx::multiply_add(factor[i / 2], products[i], sums[i]);
  }
};

using Q8Tile = QuantisedTile<Int8s, 64, 2, false>;                // Q8_0
using Q4Tile = QuantisedTile<Nibbles<8>, 64, 2, false>;           // Q4_0
using Q4WithLeastTile = QuantisedTile<Nibbles<0>, 64, 2, true>;   // Q4_1
using Q4Group128Tile = QuantisedTile<Nibbles<8>, 128, 1, false>;  // Q4_G128
static_assert(Q8Tile::kBytes == 1088 && Q4Tile::kBytes == 576 && Q4WithLeastTile::kBytes == 640 &&
              Q4Group128Tile::kBytes == 1056);
#endif

}  // namespace weft::tile
