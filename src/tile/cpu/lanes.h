// Lanes that change places or become one: transposes, sums over lanes, gathers.
#pragma once

#include "tile/cpu/vec.h"

namespace weft::tile::WEFT_ISA_NAME {

// The number at each of kLanes places, `offset` behind them.
WEFT_INLINE F32 gather(const char* const* at, long long offset) {
#if WEFT_LANES == 16
  typedef long long I64x8 __attribute__((vector_size(64), aligned(8), may_alias));
  const auto* places = reinterpret_cast<const I64x8*>(at);
  const auto* base = reinterpret_cast<const void*>(offset);
  const F32x8 low = __builtin_ia32_gatherdiv16sf(F32x8{}, base, places[0], -1, 1);
  const F32x8 high = __builtin_ia32_gatherdiv16sf(F32x8{}, base, places[1], -1, 1);
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  F32 v = {};
  for (int i = 0; i < kLanes; ++i) __builtin_memcpy(reinterpret_cast<char*>(&v) + 4 * i, at[i] + offset, 4);
  return v;
#endif
}

template <int... I>
struct Lanes {};
template <int N, int... I>
struct MakeLanes : MakeLanes<N - 1, N - 1, I...> {};
template <int... I>
struct MakeLanes<0, I...> {
  using Type = Lanes<I...>;
};
using AllLanes = typename MakeLanes<WEFT_LANES>::Type;

namespace detail {

// One step of a transpose: exchanges the blocks of S lanes that lie off the diagonal.
template <int S, int... I>
WEFT_INLINE void exchange(F32& a, F32& b, Lanes<I...>) {
  const F32 low = __builtin_shufflevector(a, b, ((I & S) ? kLanes + I - S : I)...);
  const F32 high = __builtin_shufflevector(a, b, ((I & S) ? kLanes + I : I + S)...);
  a = low;
  b = high;
}

// Sums of neighbours within each 4 lanes: (a0+a1, a2+a3, b0+b1, b2+b3).
template <int... I>
WEFT_INLINE F32 add_pairs(F32 a, F32 b, Lanes<I...>) {
  const F32 even = __builtin_shufflevector(a, b, (((I & 3) < 2 ? 0 : kLanes) + (I & ~3) + (I & 1) * 2)...);
  const F32 odd = __builtin_shufflevector(a, b, (((I & 3) < 2 ? 0 : kLanes) + (I & ~3) + (I & 1) * 2 + 1)...);
  return even + odd;
}

// Sums of neighbouring fours.
template <int... I>
WEFT_INLINE F32 add_fours(F32 a, F32 b, Lanes<I...>) {
  const F32 even = __builtin_shufflevector(a, b, ((I & ~3) * 2 + (I & 3))...);
  const F32 odd = __builtin_shufflevector(a, b, ((I & ~3) * 2 + 4 + (I & 3))...);
  return even + odd;
}

template <int... I>
WEFT_INLINE void split_pairs(F32& a, F32& b, Lanes<I...>) {
  const F32 even = __builtin_shufflevector(a, b, (2 * I)...);
  b = __builtin_shufflevector(a, b, (2 * I + 1)...);
  a = even;
}
template <int... I>
WEFT_INLINE void join_pairs(F32& even, F32& odd, Lanes<I...>) {
  const F32 low = __builtin_shufflevector(even, odd, (I % 2 * kLanes + I / 2)...);
  odd = __builtin_shufflevector(even, odd, (I % 2 * kLanes + (kLanes + I) / 2)...);
  even = low;
}
template <int... I>
WEFT_INLINE void join_fours(F32& a, F32& b, Lanes<I...>) {
  const F32 low = __builtin_shufflevector(a, b, (I / 4 % 2 * kLanes + I / 8 * 4 + I % 4)...);
  b = __builtin_shufflevector(a, b, (I / 4 % 2 * kLanes + kLanes / 2 + I / 8 * 4 + I % 4)...);
  a = low;
}
}  // namespace detail

// The elements of two vectors that follow each other <-> the even ones, the odd ones.
WEFT_INLINE void split_pairs(F32& a, F32& b) { detail::split_pairs(a, b, AllLanes()); }
WEFT_INLINE void join_pairs(F32& even, F32& odd) { detail::join_pairs(even, odd, AllLanes()); }
// Four elements of one vector, four of the other, and so on.
WEFT_INLINE void join_fours(F32& a, F32& b) { detail::join_fours(a, b, AllLanes()); }

// rows[i][j] <-> rows[j][i].
WEFT_INLINE void transpose(F32 (&rows)[kLanes]) {
  const AllLanes all;
#define WEFT_EXCHANGE(S) \
  _Pragma("GCC unroll 16") for (int i = 0; i < kLanes; ++i) if (!(i & S)) detail::exchange<S>(rows[i], rows[i + S], all)
  WEFT_EXCHANGE(1);
  WEFT_EXCHANGE(2);
#if WEFT_LANES >= 8
  WEFT_EXCHANGE(4);
#endif
#if WEFT_LANES >= 16
  WEFT_EXCHANGE(8);
#endif
#undef WEFT_EXCHANGE
}

#if WEFT_LANES == 16
// The same of the left and the right half of the lanes, each 8 x 8.
WEFT_INLINE void transpose_halves(F32 (&rows)[8]) {
  const AllLanes all;
#define WEFT_EXCHANGE(S) \
  _Pragma("GCC unroll 8") for (int i = 0; i < 8; ++i) if (!(i & S)) detail::exchange<S>(rows[i], rows[i + S], all)
  WEFT_EXCHANGE(1);
  WEFT_EXCHANGE(2);
  WEFT_EXCHANGE(4);
#undef WEFT_EXCHANGE
}
#endif

// Steps of sum_each, of the lanes of kTo numbers to a vector, where v has those of kFrom.
template <int kFrom, int kTo, int N>
WEFT_INLINE auto fold_lanes(const F32 (&v)[N]) {
  struct Folded {
    F32 v[N / (kTo / kFrom)];
  };
  if constexpr (kFrom == kTo) {
    Folded same;
    for (int i = 0; i < N; ++i) same.v[i] = v[i];
    return same;
  } else {
    F32 half[N / 2];
#pragma GCC unroll 8
    for (int i = 0; i < N / 2; ++i)
      half[i] = kFrom < 4 ? detail::add_pairs(v[2 * i], v[2 * i + 1], AllLanes())
                          : detail::add_fours(v[2 * i], v[2 * i + 1], AllLanes());
    return fold_lanes<2 * kFrom, kTo>(half);
  }
}
// Lane i of the result is the sum of the lanes of v[i].
WEFT_INLINE F32 sum_each(const F32 (&v)[kLanes]) { return fold_lanes<1, kLanes>(v).v[0]; }

namespace detail {

// Lane i and the lane `distance` away.
template <int distance, class Vector, int... I>
WEFT_INLINE Vector partners(Vector v, Lanes<I...>) {
  return __builtin_shufflevector(v, v, (I ^ distance)...);
}
template <int distance, class Vector, class Combine>
WEFT_INLINE Vector fold(Vector v, const Combine& combine) {
  if constexpr (distance < kLanes) v = fold<2 * distance>(combine(v, partners<distance>(v, AllLanes())), combine);
  return v;
}

}  // namespace detail

WEFT_INLINE float sum_lanes(F32 v) {
  return detail::fold<1>(v, [](F32 a, F32 b) { return a + b; })[0];
}
WEFT_INLINE float max_lanes(F32 v) {
  return detail::fold<1>(v, [](F32 a, F32 b) { return max(a, b); })[0];
}

WEFT_INLINE unsigned sum_lanes(U32 v) {
  return detail::fold<1>(v, [](U32 a, U32 b) { return a + b; })[0];
}
WEFT_INLINE unsigned max_lanes(U32 v) {
  return detail::fold<1>(v, [](U32 a, U32 b) { return max(a, b); })[0];
}

}  // namespace weft::tile::WEFT_ISA_NAME
