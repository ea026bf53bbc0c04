// Products in fp32 (weights of any format, expanded to fp32 first) and with the machine's bf16 dot. One accumulator an
// output, over k in order: the value does not depend on how many rows are computed together.
#pragma once

#include "ops/gemm/kernels/integer.h"

namespace weft::gemm::WEFT_ISA_NAME {
namespace {

// Inputs [32 * first, ...) of a panel as fp32 [blocks * 32][kPanel].
template <Format format>
void expand_blocks(const char* from, long long blocks, float* to) {
  for (long long b = 0; b < blocks; ++b, from += kBlockBytesOf<format>, to += kBlock * kPanel) {
    prefetch_ahead<kBlockBytesOf<format>>(from);
    const char* scales = from + kWordsOf<format> * kPanel * 4;
    unroll<kVecs>([&](auto v) {
      F32 m = {};
      if constexpr (kHasMin<format>) m = load_m<format>(scales, v.value);
      for (int j = 0; j < kWordsOf<format>; ++j) {
        const F32 d = load_d<format>(scales, v.value, j / 4);
        const U32 words = load_u32(from + (j * kVecs + v.value) * kVecBytes);
        float* column = to + v.value * kLanes;
        unroll<4>([&](auto byte) {
          const int element = 4 * j + byte.value;
          if constexpr (kWordsOf<format> == 8) {
            const I32 q = reinterpret_cast<I32>(words << (24 - 8 * byte.value)) >> 24;
            store(column + element * kPanel, to_f32(q) * d);
          } else {
            constexpr int kOffset = format == Format::q4_0 ? 8 : 0;
            const auto nibble = [&](int shift) WEFT_INLINED {
              return to_f32(reinterpret_cast<I32>(words >> shift & 15u) - kOffset);
            };
            store(column + element * kPanel, fma(nibble(8 * byte.value), d, m));
            store(column + (element + 16) * kPanel, fma(nibble(8 * byte.value + 4), d, m));
          }
        });
      }
    });
  }
}

inline void expand_f16(const char* from, long long count, float* to) {
  for (long long i = 0; i < count * kVecs; ++i) store(to + i * kLanes, Fp16::load(from + i * kLanes * 2));
}

inline void expand_bf16(const char* from, long long pairs, float* to) {
  for (long long i = 0; i < pairs; ++i, from += kPanel * 4, to += 2 * kPanel) {
    prefetch_ahead<kPanel * 4>(from);
    unroll<kVecs>([&](auto v) {
      const U32 pair = load_u32(from + v.value * kVecBytes);
      store(to + v.value * kLanes, even_bf16_to_f32(pair));
      store(to + kPanel + v.value * kLanes, odd_bf16_to_f32(pair));
    });
  }
}

struct Fp32Step {
  static constexpr int kWeightBytes = kPanel * 4;
  static F32 step(F32 acc, const char* w, U32 x) {
    return fma(load(reinterpret_cast<const float*>(w)), as_f32(x), acc);
  }
};
#if defined(WEFT_HAS_BF16_DOT)
struct Bf16Step {
  static F32 step(F32 acc, const char* w, U32 x) { return dot_bf16(acc, load_u32(w), x); }
};
#endif

// acc[r][...] += w [steps][kPanel] words times words [0, steps) of rows at x, ldx bytes apart.
template <class S, int kRows>
void float_tile(const char* w, long long steps, const char* x, long long ldx, float* acc) {
  F32 sums[kRows][kVecs];
  unroll<kRows>([&](auto r) {
    unroll<kVecs>([&](auto v) { sums[r.value][v.value] = load(acc + r.value * kPanel + v.value * kLanes); });
  });
  for (long long k = 0; k < steps; ++k, w += kPanel * 4, x += 4)
    unroll<kRows>([&](auto r) {
      const U32 at = broadcast_word(x + r.value * ldx);
      unroll<kVecs>(
          [&](auto v) { sums[r.value][v.value] = S::step(sums[r.value][v.value], w + v.value * kVecBytes, at); });
    });
  unroll<kRows>([&](auto r) {
    unroll<kVecs>([&](auto v) { store(acc + r.value * kPanel + v.value * kLanes, sums[r.value][v.value]); });
  });
}

}  // namespace
}  // namespace weft::gemm::WEFT_ISA_NAME
