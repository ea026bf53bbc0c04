// How quantised weights are multiplied: what a register of them holds in each scheme, and what scales its sums.
#pragma once

#include "ops/gemm/kernels/panel.h"

namespace weft::gemm::WEFT_ISA_NAME {
namespace {

template <Format format>
inline constexpr int kWordsOf = block_layout(format).words;  // a column and block
template <Format format>
inline constexpr bool kHasMin = block_layout(format).halves == 2;
// What scales a block's sums: d; d, and m times the activations' sum; or d for each half of the block.
enum class Scales { one, with_min, halves };
template <Format format>
inline constexpr Scales kScales = format == Format::q6_k ? Scales::halves
                                  : kHasMin<format>      ? Scales::with_min
                                                         : Scales::one;
template <Format format>
inline constexpr long long kBlockBytesOf = panel_bytes(format, kBlock, kPanel);

// d of column vector v, with the 8-bit factor of K types; m likewise. `scales` follows a packed block's words.
template <Format format>
inline F32 load_d(const char* scales, int v, int half = 0) {
  const F32 d = Fp16::load(scales + v * kLanes * 2);
  constexpr BlockLayout layout = block_layout(format);
  if constexpr (layout.bytes == 0) return d;
  const int factor = layout.halves * 2 * kPanel + (kScales<format> == Scales::halves ? half * kPanel : 0);
  return d * Int8::load(scales + factor + v * kLanes);
}
template <Format format>
inline F32 load_m(const char* scales, int v) {
  const F32 m = Fp16::load(scales + (kPanel + v * kLanes) * 2);
  if constexpr (format == Format::q4_1) return m;
  return m * Int8::load(scales + 5 * kPanel + v * kLanes);
}

// A scheme says what a register of weights holds. A block is kSlots registers for each vector of outputs; the one in
// slot s is multiplied by the activations at byte 4 * s of the block. unpack makes kUnpacked registers of a packed
// word, register u for slot(word, u). Integers are kOffset above the weights: what that adds to a block's sums is taken
// off as they begin, for nothing, or where they are too narrow for it as they end.

// A register holds two inputs of each output as int16. The inputs of a pair are elements e and e + 2 of a group of
// four, so prepare() swaps the middle two of each four activations.
struct Pair16 {
  static constexpr bool kRowScale = true;
  static constexpr int kSlots = 16;
  template <Format format>
  static constexpr int kUnpacked = kWordsOf<format> == 8 ? 2 : 4;
  template <Format format>
  static constexpr int kOffset = format == Format::q4_0 ? 8 : 0;
  template <Format format>
  static constexpr int slot(int word, int u) {
    return kWordsOf<format> == 8 ? 2 * word + u : (u & 1) * 8 + 2 * word + (u >> 1);
  }
  template <Format format, int u>
  static U32 unpack(U32 raw) {
    if constexpr (kWordsOf<format> == 8) {
      return shift_right_i16<8>(u == 0 ? shift_left_i16<8>(raw) : raw);
    } else {
      constexpr unsigned kNibbles = 0x000f000fu;
      if constexpr (u == 0) return raw & kNibbles;
      if constexpr (u == 3) return shift_right_u16<12>(raw);
      return shift_right_u16<4 * u>(raw) & kNibbles;
    }
  }
  using Activations = U32;
  using Sum = I32;
  static U32 activations(const char* x) { return broadcast_word(x); }
  static I32 begin(I32 offset) { return offset; }
  static I32 dot(I32 acc, U32 w, U32 x) { return settled(dot_shorts(acc, w, x)); }
  static I32 total(I32 acc, I32) { return acc; }
};

#if !defined(WEFT_ISA_plain)
// A register holds four inputs of each output as unsigned bytes.
struct Quad8 {
  static constexpr bool kRowScale = false;
  static constexpr int kSlots = 8;
  template <Format format>
  static constexpr int kUnpacked = format == Format::q8_0 ? 1 : 2;
  template <Format format>
  static constexpr int kOffset = format == Format::q8_0   ? 128
                                 : format == Format::q4_0 ? 8
                                                          : 0;
  template <Format format>
  static constexpr int slot(int word, int u) {
    return word + 4 * u;
  }
  template <Format format, int u>
  static U32 unpack(U32 raw) {
    if constexpr (format == Format::q8_0) return raw ^ 0x80808080u;
    return (u == 0 ? raw : shift_right_u16<4>(raw)) & 0x0f0f0f0fu;
  }
  using Activations = U32;
  static U32 activations(const char* x) { return broadcast_word(x); }
#if !defined(WEFT_HAS_BYTE_DOT)
  // For 4-bit weights only: int16 sums over a block reach 8 * 2 * 15 * 127 = 30,480.
  using Sum = U32;
  static Sum begin(I32) { return Sum{}; }
  static Sum dot(Sum acc, U32 w, U32 x) { return settled(dot_bytes_i16(acc, w, x)); }
  static I32 total(Sum acc, I32 offset) { return sum_shorts(acc) + offset; }
#else
  using Sum = I32;
  static Sum begin(I32 offset) { return offset; }
  static Sum dot(Sum acc, U32 w, U32 x) { return settled(dot_bytes(acc, w, x)); }
  static I32 total(Sum acc, I32) { return acc; }
#endif
};
#endif

#if defined(WEFT_HAS_BYTE_DOT)
// Registers of weights as Quad8 has them, beside the higher and the lower signed byte of int16 activations: Pair16's
// sums to the bit, with half of its unpacking and as many products.
struct SplitInt8 : Quad8 {
  static constexpr bool kRowScale = true;
  static constexpr int kSlots = 16;
  template <Format format>
  static constexpr int slot(int word, int u) {
    return 2 * Quad8::slot<format>(word, u);
  }
  struct Activations {
    U32 high, low;
  };
  struct Sum {
    I32 high, low;
  };
  static Activations activations(const char* x) { return {broadcast_word(x), broadcast_word(x + 4)}; }
  static Sum begin(I32 offset) { return {I32{}, offset}; }
  static Sum dot(const Sum& acc, U32 w, const Activations& x) {
    return {Quad8::dot(acc.high, w, x.high), Quad8::dot(acc.low, w, x.low)};
  }
  static I32 total(const Sum& acc, I32) { return (acc.high << 8) + acc.low; }
};
#endif

}  // namespace
}  // namespace weft::gemm::WEFT_ISA_NAME
