// Products of quantised weights with integer activations: int32 sums over a block of 32 inputs, scaled and added
// in fp32 block by block. One tile kernel over two choices: the scheme (how integers are multiplied) and where the
// weights come from (packed: unpacked in registers; else a panel that unpack_panel expanded).
//
// Whatever the tile's height and source, an output is the same chain of operations: its value does not depend on
// how many rows are computed together.
#pragma once

#include "ops/gemm/kernels/abi.h"
#include "ops/gemm/kernels/simd.h"

namespace weft::gemm::WEFT_ISA_NAME {
namespace {

template <Format format>
inline constexpr int kWordsOf = format == Format::q8_0 ? 8 : 4;  // a column and block
template <Format format>
inline constexpr bool kHasMin = format == Format::q4_1;
template <Format format>
inline constexpr long long kBlockBytesOf = kPanel*(kWordsOf<format> * 4 + (kHasMin<format> ? 4 : 2));

#if defined(WEFT_ISA_plain) || defined(WEFT_ISA_avx2)
// A vector of weights holds two inputs of each output as int16. The inputs of a pair are elements e and e + 2 of a
// group of four, so prepare() swaps the middle two of each four activations.
struct Pair16 {
  static constexpr bool kRowScale = true;
  static constexpr int kXBytes = 64;  // activations of a block
  typedef Ints Acc;
  template <Format format>
  static constexpr int kUnpacked = format == Format::q8_0 ? 2 : 4;  // vectors from one packed vector
  template <Format format>
  static constexpr int kOffset = format == Format::q4_0 ? 8 : 0;  // what integers are above the weights
  // Byte offset within a block's activations of what vector u of word j multiplies.
  template <Format format>
  static constexpr int x_offset(int j, int u) {
    return format == Format::q8_0 ? (2 * j + u) * 4 : ((u & 1) * 8 + 2 * j + (u >> 1)) * 4;
  }
  template <Format format, int u>
  static Ints unpack(Ints raw) {
    if constexpr (format == Format::q8_0) {
      return u == 0 ? shift_right16<8>(shift_left16<8>(raw)) : shift_right16<8>(raw);
    } else {
      const Ints nibble = set(0x000f000f);
      if constexpr (u == 0) return bit_and(raw, nibble);
      if constexpr (u == 3) return shift_right_zero16<12>(raw);
      return bit_and(shift_right_zero16<4 * u>(raw), nibble);
    }
  }
  static Acc zero() { return set(0); }
  static Acc dot(Acc acc, Ints w, const char* x) { return settled(pair_dot(acc, w, broadcast(x))); }
  static Ints total(Acc acc) { return acc; }
};
#else
// Shared by both int8 schemes: a vector of weights holds four inputs of each output as unsigned bytes.
struct Quad {
  template <Format format>
  static constexpr int kUnpacked = format == Format::q8_0 ? 1 : 2;
  template <Format format>
  static constexpr int kOffset = format == Format::q8_0   ? 128
                                 : format == Format::q4_0 ? 8
                                                          : 0;
  template <Format format>
  static constexpr int x_offset(int j, int u) {
    return (j + 4 * u) * 4;
  }
  template <Format format, int u>
  static Ints unpack(Ints raw) {
    if constexpr (format == Format::q8_0) return bit_xor(raw, set(static_cast<int>(0x80808080u)));
    return bit_and(u == 0 ? raw : shift_right_zero<4>(raw), set(0x0f0f0f0f));
  }
};
struct Quad8x2 : Quad {
  static constexpr bool kRowScale = true;
  static constexpr int kXBytes = 64;  // 32 high bytes, 32 low bytes
  struct Acc {
    Ints high, low;
  };
  static Acc zero() { return {set(0), set(0)}; }
  static Acc dot(Acc acc, Ints w, const char* x) {
    return {settled(quad_dot(acc.high, w, broadcast(x))), settled(quad_dot(acc.low, w, broadcast(x + 32)))};
  }
  static Ints total(Acc acc) { return add(shift_left<8>(acc.high), acc.low); }
};
#endif

#if defined(WEFT_ISA_avx2)
// For 4-bit weights only: int16 sums over a block reach 8 * 2 * 15 * 127 = 30,480.
struct Quad8 {
  static constexpr bool kRowScale = false;
  static constexpr int kXBytes = 32;
  typedef Ints Acc;
  template <Format format>
  static constexpr int kUnpacked = 2;
  template <Format format>
  static constexpr int kOffset = format == Format::q4_0 ? 8 : 0;
  template <Format format>
  static constexpr int x_offset(int j, int u) {
    return (j + 4 * u) * 4;
  }
  template <Format format, int u>
  static Ints unpack(Ints raw) {
    static_assert(format != Format::q8_0);
    return bit_and(u == 0 ? raw : shift_right_zero16<4>(raw), set(0x0f0f0f0f));
  }
  static Acc zero() { return set(0); }
  static Acc dot(Acc acc, Ints w, const char* x) { return settled(quad_dot16(acc, w, broadcast(x))); }
  static Ints total(Acc acc) { return widen_pairs(acc); }
};
#elif !defined(WEFT_ISA_plain)
struct Quad8 : Quad {
  static constexpr bool kRowScale = false;
  static constexpr int kXBytes = 32;
  typedef Ints Acc;
  static Acc zero() { return set(0); }
  static Acc dot(Acc acc, Ints w, const char* x) { return settled(quad_dot(acc, w, broadcast(x))); }
  static Ints total(Acc acc) { return acc; }
};
#endif

// An unpacked block: vectors in the order (word, vector of it, column vector), then d and m as fp32.
template <class S, Format format>
inline constexpr int kUnpackedVectors = kWordsOf<format>* S::template kUnpacked<format>* kVecs;
template <class S, Format format>
inline constexpr long long kUnpackedBytes = kUnpackedVectors<S, format>* kVecBytes + 2 * kPanel * 4;

template <int n>
struct Index {
  static constexpr int value = n;
};
// Calls body(Index<0>), ..., body(Index<n - 1>).
template <int n, class Body>
inline __attribute__((always_inline)) void unroll(const Body& body) {
  if constexpr (n > 0) {
    unroll<n - 1>(body);
    body(Index<n - 1>{});
  }
}

template <class S, Format format>
void unpack_blocks(const char* from, long long blocks, char* to) {
  constexpr int kU = S::template kUnpacked<format>;
  for (long long b = 0; b < blocks; ++b, from += kBlockBytesOf<format>, to += kUnpackedBytes<S, format>) {
    for (int j = 0; j < kWordsOf<format>; ++j)
      unroll<kVecs>([&](auto v) {
        const Ints raw = load_ints(from + (j * kVecs + v.value) * kVecBytes);
        unroll<kU>([&](auto u) {
          store_ints(to + ((j * kU + u.value) * kVecs + v.value) * kVecBytes, S::template unpack<format, u.value>(raw));
        });
      });
    const char* scales = from + kWordsOf<format> * kPanel * 4;
    float* real = reinterpret_cast<float*>(to + kUnpackedVectors<S, format> * kVecBytes);
    for (int v = 0; v < kVecs; ++v) {
      store(real + v * kLanes, load_halves(scales + v * kLanes * 2));
      if constexpr (kHasMin<format>) store(real + kPanel + v * kLanes, load_halves(scales + (kPanel + v * kLanes) * 2));
    }
  }
}

// acc[r][0..kPanel) += blocks of w times blocks [first, first + blocks) of rows row..row + kRows of x, in units of the
// row's scale where the scheme has one a row.
template <class S, Format format, int kRows, bool kPacked>
void integer_tile(const char* w, long long first, long long blocks, const Rows& rows, long long row, float* acc) {
  constexpr int kU = S::template kUnpacked<format>;
  constexpr int kOffset = S::template kOffset<format>;
  const char* x = rows.data + row * rows.row_bytes + first * S::kXBytes;
  const long long ldx = rows.row_bytes;
  for (long long b = first; b < first + blocks; ++b, x += S::kXBytes) {
    typename S::Acc sums[kRows][kVecs];
    unroll<kRows>([&](auto r) { unroll<kVecs>([&](auto v) { sums[r.value][v.value] = S::zero(); }); });
    unroll<kWordsOf<format>>([&](auto j) {
      Ints raw[kVecs];
      if constexpr (kPacked)
        unroll<kVecs>([&](auto v) { raw[v.value] = load_ints(w + (j.value * kVecs + v.value) * kVecBytes); });
      unroll<kU>([&](auto u) {
        Ints weights[kVecs];
        unroll<kVecs>([&](auto v) {
          if constexpr (kPacked)
            weights[v.value] = S::template unpack<format, u.value>(raw[v.value]);
          else
            weights[v.value] = load_ints(w + ((j.value * kU + u.value) * kVecs + v.value) * kVecBytes);
        });
        unroll<kRows>([&](auto r) {
          const char* at = x + r.value * ldx + S::template x_offset<format>(j.value, u.value);
          unroll<kVecs>([&](auto v) { sums[r.value][v.value] = S::dot(sums[r.value][v.value], weights[v.value], at); });
        });
      });
    });
    Floats d[kVecs], m[kVecs];
    const char* scales = w + (kPacked ? kWordsOf<format> * kPanel * 4 : kUnpackedVectors<S, format> * kVecBytes);
    unroll<kVecs>([&](auto v) {
      if constexpr (kPacked) {
        d[v.value] = load_halves(scales + v.value * kLanes * 2);
        if constexpr (kHasMin<format>) m[v.value] = load_halves(scales + (kPanel + v.value * kLanes) * 2);
      } else {
        d[v.value] = load(reinterpret_cast<const float*>(scales) + v.value * kLanes);
        if constexpr (kHasMin<format>)
          m[v.value] = load(reinterpret_cast<const float*>(scales) + kPanel + v.value * kLanes);
      }
    });
    unroll<kRows>([&](auto r) {
      const long long i = (row + r.value) * rows.sum_stride + b;
      unroll<kVecs>([&](auto v) {
        Ints total = S::total(sums[r.value][v.value]);
        if constexpr (kOffset != 0) total = sub(total, set(kOffset * rows.sums[i]));
        float* to = acc + r.value * kPanel + v.value * kLanes;
        Floats scale = d[v.value];
        if constexpr (!S::kRowScale) scale = mul(scale, set(rows.scales[(row + r.value) * rows.scale_stride + b]));
        Floats y = fma(to_floats(total), scale, load(to));
        if constexpr (kHasMin<format>) y = fma(m[v.value], set(rows.real_sums[i]), y);
        store(to, y);
      });
    });
    w += kPacked ? kBlockBytesOf<format> : kUnpackedBytes<S, format>;
  }
}

}  // namespace
}  // namespace weft::gemm::WEFT_ISA_NAME
