// Products of quantised weights with integer activations: int32 sums over a block of 32 inputs, scaled and added
// in fp32 block by block. Two tiles: one unpacks a chunk of a panel in registers, and may leave it unpacked for the
// rows that follow; the other, the same for every format, multiplies what was left.
//
// Whatever the tile, an output is the same chain of operations: its value does not depend on how many rows are
// computed together.
#pragma once

#include "ops/gemm/kernels/schemes.h"

namespace weft::gemm::WEFT_ISA_NAME {
namespace {

// Where a row's block lies in the groups of Rows.
inline long long place_of(const Rows& x, long long row, long long block) {
  return (row / x.group * x.blocks + block) * x.group + row % x.group;
}

// Weights pass by once, and a core alone asks for too few of them ahead of time: into the second-level cache, whose
// requests do not hold up loads, and a little ahead into the first.
template <long long bytes>
inline void prefetch_ahead(const char* w) {
  constexpr long long kFar = 16384, kNear = 1024;
  for (long long line = 0; line < bytes; line += 64) {
    prefetch(w + kFar + line);
    prefetch_near(w + kNear + line);
  }
}

// An unpacked block: [slot][vector of outputs], then d as fp32, and m or the d of the second half.
template <class S>
inline constexpr long long kUnpackedWeights = S::kSlots* kVecs* kVecBytes;
template <class S>
inline constexpr long long kUnpackedBytes = kUnpackedWeights<S> + 2 * kPanel * 4;

// The same numbers of a packed block.
template <Format format>
inline void load_scales(const char* w, F32 (&d)[kVecs], F32 (&second)[kVecs]) {
  const char* scales = w + kWordsOf<format> * kPanel * 4;
  unroll<kVecs>([&](auto v) WEFT_INLINED {
    d[v.value] = load_d<format>(scales, v.value);
    if constexpr (kScales<format> == Scales::with_min) second[v.value] = load_m<format>(scales, v.value);
    if constexpr (kScales<format> == Scales::halves) second[v.value] = load_d<format>(scales, v.value, 1);
  });
}

template <class S, Format format>
inline void keep_scales(const F32 (&d)[kVecs], const F32 (&second)[kVecs], char* unpacked) {
  float* scales = reinterpret_cast<float*>(unpacked + kUnpackedWeights<S>);
  unroll<kVecs>([&](auto v) WEFT_INLINED {
    store(scales + v.value * kLanes, d[v.value]);
    if constexpr (kScales<format> != Scales::one) store(scales + kPanel + v.value * kLanes, second[v.value]);
  });
}

// sums += the weights of a slot times the activations that begin at x.
template <class S, int kRows>
inline WEFT_INLINED void add_products(typename S::Sum (&sums)[kRows][kVecs], const U32 (&weights)[kVecs],
                                      const char* x) {
  unroll<kRows>([&](auto r) WEFT_INLINED {
    const typename S::Activations at = S::activations(x + r.value * S::kSlots * 4);
    unroll<kVecs>([&](auto v)
                      WEFT_INLINED { sums[r.value][v.value] = S::dot(sums[r.value][v.value], weights[v.value], at); });
  });
}

// What weights `offset` too large would add to the sums of row r's block, turned round.
template <int offset>
inline WEFT_INLINED I32 offset_of(const Rows& x, long long place, int r) {
  if constexpr (offset == 0) return I32{};
  const I32 least = reinterpret_cast<I32>(broadcast_word(x.offsets + place + r));
  if constexpr (offset == kLeastOffset) return least;
  static_assert(offset == 0 || offset == kLeastOffset || offset == kLeastOffset << 4);
  return least << 4;
}

template <class S, int offset, int kRows>
inline WEFT_INLINED void begin_sums(typename S::Sum (&sums)[kRows][kVecs], const Rows& x, long long place) {
  unroll<kRows>([&](auto r) WEFT_INLINED {
    const I32 first = offset_of<offset>(x, place, r.value);
    unroll<kVecs>([&](auto v) WEFT_INLINED { sums[r.value][v.value] = S::begin(first); });
  });
}

// A tile's sums over all blocks: in registers until it ends, or where they lie.
template <int kRows>
struct TileSums {
  float* acc;
  F32 held[kRows][kVecs];
  template <class Work>
  WEFT_INLINED void each(const Work& work) {
    if constexpr (kHoldsSums<kRows>)
      unroll<kRows>([&](auto r) WEFT_INLINED {
        unroll<kVecs>([&](auto v)
                          WEFT_INLINED { work(held[r.value][v.value], acc + r.value * kPanel + v.value * kLanes); });
      });
  }
  WEFT_INLINED void begin() {
    each([](F32& sum, const float* at) WEFT_INLINED { sum = load(at); });
  }
  WEFT_INLINED F32 get(int row, int vec) const {
    if constexpr (kHoldsSums<kRows>) return held[row][vec];
    return load(acc + row * kPanel + vec * kLanes);
  }
  WEFT_INLINED void put(int row, int vec, F32 sum) {
    if constexpr (kHoldsSums<kRows>)
      held[row][vec] = sum;
    else
      store(acc + row * kPanel + vec * kLanes, sum);
  }
  WEFT_INLINED void end() {
    each([](F32 sum, float* at) WEFT_INLINED { store(at, sum); });
  }
};

// to += the sums of a block, scaled; `place` is that of row 0's block. In units of the row's scale where the scheme has
// one a row.
template <class S, bool kMin, int offset, int kRows>
inline WEFT_INLINED void add_sums(const typename S::Sum (&sums)[kRows][kVecs], const F32 (&d)[kVecs],
                                  const F32 (&m)[kVecs], const Rows& x, long long place, TileSums<kRows>& to) {
  const float *scales = x.scales + place, *real = x.real_sums + place;
  // Or gcc holds some of them over blocks, in registers that it does not have.
  if constexpr (!kHoldsSums<kRows>) asm("" : "+r"(to.acc));
  unroll<kRows>([&](auto r) WEFT_INLINED {
    unroll<kVecs>([&](auto v) WEFT_INLINED {
      const I32 total = S::total(sums[r.value][v.value], offset_of<offset>(x, place, r.value));
      F32 scale = d[v.value];
      if constexpr (!S::kRowScale) scale = scale * broadcast(scales[r.value]);
      F32 y = fma(to_f32(total), scale, to.get(r.value, v.value));
      if constexpr (kMin) y = fma(m[v.value], broadcast(real[r.value]), y);
      to.put(r.value, v.value, y);
    });
  });
}

// acc += packed blocks [first, first + blocks), at w, times rows row..row + kRows of x, all of one group. kKeep: leaves
// the blocks unpacked at `to`.
template <class S, Format format, int kRows, bool kKeep>
void packed_tile(const char* w, long long first, long long blocks, const Rows& rows, long long row, float* acc,
                 char* to) {
  TileSums<kRows> tile{acc, {}};
  tile.begin();
  long long place = place_of(rows, row, first);
  for (long long b = 0; b < blocks; ++b, place += rows.group, w += kBlockBytesOf<format>) {
    prefetch_ahead<kBlockBytesOf<format>>(w);
    const char* x = rows.data + place * S::kSlots * 4;
    F32 scales[2][kVecs];
    constexpr int kHalves = kScales<format> == Scales::halves ? 2 : 1, kHalfWords = kWordsOf<format> / kHalves;
    unroll<kHalves>([&](auto half) WEFT_INLINED {
      constexpr int kOffset = S::template kOffset<format>;
      typename S::Sum sums[kRows][kVecs];
      begin_sums<S, kOffset>(sums, rows, place);
      const auto add_word = [&](int j) WEFT_INLINED {
        U32 raw[kVecs];
        unroll<kVecs>([&](auto v) WEFT_INLINED { raw[v.value] = load_u32(w + (j * kVecs + v.value) * kVecBytes); });
        unroll<S::template kUnpacked<format>>([&](auto u) WEFT_INLINED {
          const int slot = S::template slot<format>(j, u.value);
          U32 weights[kVecs];
          unroll<kVecs>([&](auto v) WEFT_INLINED {
            weights[v.value] = settled(S::template unpack<format, u.value>(raw[v.value]));
            if constexpr (kKeep) store_u32(to + (slot * kVecs + v.value) * kVecBytes, weights[v.value]);
          });
          add_products<S>(sums, weights, x + slot * 4);
        });
      };
      constexpr int kFirst = half.value * kHalfWords;
      if constexpr (kRows <= 4) {
        unroll<kHalfWords>([&](auto word) WEFT_INLINED { add_word(kFirst + word.value); });
      } else {
#pragma GCC unroll 1
        for (int j = kFirst; j < kFirst + kHalfWords; ++j) add_word(j);
      }
      if constexpr (half.value == 0) {
        load_scales<format>(w, scales[0], scales[1]);
        if constexpr (kKeep) keep_scales<S, format>(scales[0], scales[1], to);
      }
      add_sums<S, kHasMin<format>, kOffset>(sums, scales[half.value], scales[1], rows, place, tile);
    });
    if constexpr (kKeep) to += kUnpackedBytes<S>;
  }
  tile.end();
}

// The same with blocks that were left unpacked.
template <class S, Scales kKind, int offset, int kRows>
void unpacked_tile(const char* w, long long first, long long blocks, const Rows& rows, long long row, float* acc) {
  TileSums<kRows> tile{acc, {}};
  tile.begin();
  long long place = place_of(rows, row, first);
  for (long long b = 0; b < blocks; ++b, place += rows.group, w += kUnpackedBytes<S>) {
    const char* x = rows.data + place * S::kSlots * 4;
    constexpr int kHalves = kKind == Scales::halves ? 2 : 1, kHalfSlots = S::kSlots / kHalves;
    unroll<kHalves>([&](auto half) WEFT_INLINED {
      typename S::Sum sums[kRows][kVecs];
      begin_sums<S, offset>(sums, rows, place);
#pragma GCC unroll 4
      for (int slot = half.value * kHalfSlots; slot < (half.value + 1) * kHalfSlots; ++slot) {
        U32 weights[kVecs];
        unroll<kVecs>([&](auto v)
                          WEFT_INLINED { weights[v.value] = load_u32(w + (slot * kVecs + v.value) * kVecBytes); });
        add_products<S>(sums, weights, x + slot * 4);
      }
      const float* scales = reinterpret_cast<const float*>(w + kUnpackedWeights<S>) + half.value * kPanel;
      F32 d[kVecs], m[kVecs];
      unroll<kVecs>([&](auto v) WEFT_INLINED {
        d[v.value] = load(scales + v.value * kLanes);
        if constexpr (kKind == Scales::with_min) m[v.value] = load(scales + kPanel + v.value * kLanes);
      });
      add_sums<S, kKind == Scales::with_min, offset>(sums, d, m, rows, place, tile);
    });
  }
  tile.end();
}

}  // namespace
}  // namespace weft::gemm::WEFT_ISA_NAME
