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
    prefetch<kBlockBytesOf<format>>(from);
    const char* scales = from + kWordsOf<format> * kPanel * 4;
    unroll<kVecs>([&](auto v) {
      Floats m = set(0.f);
      if constexpr (kHasMin<format>) m = load_m<format>(scales, v.value);
      for (int j = 0; j < kWordsOf<format>; ++j) {
        const Floats d = load_d<format>(scales, v.value, j / 4);
        const Ints words = load_ints(from + (j * kVecs + v.value) * kVecBytes);
        float* column = to + v.value * kLanes;
        unroll<4>([&](auto byte) {
          const int element = 4 * j + byte.value;
          if constexpr (kWordsOf<format> == 8) {
            const Ints q = shift_right<24>(shift_left<24 - 8 * byte.value>(words));
            store(column + element * kPanel, mul(to_floats(q), d));
          } else {
            const Ints offset = set(format == Format::q4_0 ? 8 : 0);
            const Ints low = sub(bit_and(shift_right_zero<8 * byte.value>(words), set(15)), offset);
            const Ints high = sub(bit_and(shift_right_zero<8 * byte.value + 4>(words), set(15)), offset);
            store(column + element * kPanel, fma(to_floats(low), d, m));
            store(column + (element + 16) * kPanel, fma(to_floats(high), d, m));
          }
        });
      }
    });
  }
}

inline void expand_f16(const char* from, long long count, float* to) {
  for (long long i = 0; i < count * kVecs; ++i) store(to + i * kLanes, load_halves(from + i * kLanes * 2));
}

inline void expand_bf16(const char* from, long long pairs, float* to) {
  for (long long i = 0; i < pairs; ++i, from += kPanel * 4, to += 2 * kPanel) {
    prefetch<kPanel * 4>(from);
    unroll<kVecs>([&](auto v) {
      const Ints pair = load_ints(from + v.value * kVecBytes);
      store(to + v.value * kLanes, as_floats(shift_left<16>(pair)));
      store(to + kPanel + v.value * kLanes, as_floats(bit_and(pair, set(static_cast<int>(0xffff0000u)))));
    });
  }
}

struct Fp32Step {
  static constexpr int kWeightBytes = kPanel * 4;
  static Floats step(Floats acc, const char* w, Ints x) {
    return fma(load(reinterpret_cast<const float*>(w)), as_floats(x), acc);
  }
};
#if defined(WEFT_ISA_avx512_bf16)
struct Bf16Step {
  static Floats step(Floats acc, const char* w, Ints x) { return bf16_dot(acc, load_ints(w), x); }
};
#endif

// acc[r][...] += w [steps][kPanel] words times words [0, steps) of rows at x, ldx bytes apart.
template <class S, int kRows>
void float_tile(const char* w, long long steps, const char* x, long long ldx, float* acc) {
  Floats sums[kRows][kVecs];
  unroll<kRows>([&](auto r) {
    unroll<kVecs>([&](auto v) { sums[r.value][v.value] = load(acc + r.value * kPanel + v.value * kLanes); });
  });
  for (long long k = 0; k < steps; ++k, w += kPanel * 4, x += 4)
    unroll<kRows>([&](auto r) {
      const Ints at = broadcast(x + r.value * ldx);
      unroll<kVecs>(
          [&](auto v) { sums[r.value][v.value] = S::step(sums[r.value][v.value], w + v.value * kVecBytes, at); });
    });
  unroll<kRows>([&](auto r) {
    unroll<kVecs>([&](auto v) { store(acc + r.value * kPanel + v.value * kLanes, sums[r.value][v.value]); });
  });
}

}  // namespace
}  // namespace weft::gemm::WEFT_ISA_NAME
