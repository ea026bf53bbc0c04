// The vector vocabulary: the few operations that CPU kernels are written in, once for every instruction set.
// The macro WEFT_ISA_<name> picks the width; everything lives in a namespace of that name, so that copies of one
// kernel for several instruction sets stay apart when they are linked together. Includes nothing: texts that are
// compiled at run time may include it.
//
//   namespace vec = weft::tile::WEFT_ISA_NAME;
//   vec::F32 sum = vec::broadcast(0.f);
//   for (int i = 0; i < n; i += vec::kLanes) sum = vec::fma(vec::load(a + i), vec::load(b + i), sum);
//   float dot = vec::sum_lanes(sum);
#pragma once

#if !defined(WEFT_ISA_NAME)
#error "define WEFT_ISA_NAME and WEFT_ISA_<name>: see weft_isa_sources in cmake/WeftTargets.cmake"
#endif

#if defined(WEFT_ISA_avx512) || defined(WEFT_ISA_avx512_bf16)
#define WEFT_LANES 16
#define WEFT_REGISTERS 32
#elif defined(WEFT_ISA_avx2)
#define WEFT_LANES 8
#define WEFT_REGISTERS 16
#else
#define WEFT_LANES 4
#define WEFT_REGISTERS 16
#endif
#define WEFT_INLINE inline __attribute__((always_inline))

namespace weft::tile::WEFT_ISA_NAME {

inline constexpr int kLanes = WEFT_LANES;  // of 32 bits
inline constexpr int kRegisters = WEFT_REGISTERS;

typedef float F32 __attribute__((vector_size(4 * WEFT_LANES)));
typedef int I32 __attribute__((vector_size(4 * WEFT_LANES)));
typedef unsigned U32 __attribute__((vector_size(4 * WEFT_LANES)));
typedef unsigned short U16 __attribute__((vector_size(2 * WEFT_LANES)));

// How memory is seen: any alignment of the element, any declared type.
typedef float F32Memory __attribute__((vector_size(4 * WEFT_LANES), aligned(4), may_alias));
typedef unsigned U32Memory __attribute__((vector_size(4 * WEFT_LANES), aligned(2), may_alias));
typedef unsigned short U16Memory __attribute__((vector_size(2 * WEFT_LANES), aligned(2), may_alias));

WEFT_INLINE F32 load(const float* p) { return *reinterpret_cast<const F32Memory*>(p); }
WEFT_INLINE void store(float* p, F32 v) { *reinterpret_cast<F32Memory*>(p) = v; }
WEFT_INLINE U32 load_u32(const void* p) { return *static_cast<const U32Memory*>(p); }
WEFT_INLINE void store_u32(void* p, U32 v) { *static_cast<U32Memory*>(p) = v; }
WEFT_INLINE U16 load_u16(const void* p) { return *static_cast<const U16Memory*>(p); }
WEFT_INLINE void store_u16(void* p, U16 v) { *static_cast<U16Memory*>(p) = v; }

// x - 0 is x, and compilers know it (-0 + 0 is not -0).
WEFT_INLINE F32 broadcast(float x) { return x - F32{}; }
WEFT_INLINE U32 broadcast(unsigned x) { return U32{} + x; }
// The compiler contracts it where the machine has it (-ffp-contract=fast).
WEFT_INLINE F32 fma(F32 a, F32 b, F32 c) { return a * b + c; }

WEFT_INLINE F32 as_f32(U32 v) { return reinterpret_cast<F32>(v); }
WEFT_INLINE U32 as_u32(F32 v) { return reinterpret_cast<U32>(v); }

// The number at each of kLanes places, `offset` behind them.
WEFT_INLINE F32 gather(const char* const* at, long long offset) {
#if WEFT_LANES == 16
  typedef long long I64x8 __attribute__((vector_size(64), aligned(8), may_alias));
  typedef float F32x8 __attribute__((vector_size(32)));
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

// Into the second-level cache, for what is needed later; into the first, for what is needed next.
WEFT_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }
WEFT_INLINE void prefetch_near(const void* p) { __builtin_prefetch(p, 0, 3); }

// ---------------------------------------------------------------- lanes

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

// The larger lane; b where either is NaN.
WEFT_INLINE F32 max(F32 a, F32 b) { return a > b ? a : b; }

WEFT_INLINE float sum_lanes(F32 v) {
  return detail::fold<1>(v, [](F32 a, F32 b) { return a + b; })[0];
}
WEFT_INLINE float max_lanes(F32 v) {
  return detail::fold<1>(v, [](F32 a, F32 b) { return max(a, b); })[0];
}

WEFT_INLINE U32 max(U32 a, U32 b) { return a > b ? a : b; }
WEFT_INLINE unsigned sum_lanes(U32 v) {
  return detail::fold<1>(v, [](U32 a, U32 b) { return a + b; })[0];
}
WEFT_INLINE unsigned max_lanes(U32 v) {
  return detail::fold<1>(v, [](U32 a, U32 b) { return max(a, b); })[0];
}

// ---------------------------------------------------------------- functions

// 2^x to about 1 ulp for x of 0 or less: 0 below -125.5, exactly 1 at 0, NaN for every NaN.
WEFT_INLINE F32 exp2(F32 x) {
  x = max(broadcast(-126.f), x);
  const F32 shifted = x + (12582912.f + 126.f);  // 2^(r - 1), for r = round(x), has the exponent field r + 126
  const F32 f = x - (shifted - (12582912.f + 126.f));
  F32 g = fma(f, broadcast(2 * 1.545316295e-04f), broadcast(2 * 1.339086336e-03f));
  g = fma(g, f, broadcast(2 * 9.618082557e-03f));
  g = fma(g, f, broadcast(2 * 5.550357114e-02f));
  g = fma(g, f, broadcast(2 * 2.402265076e-01f));
  g = fma(g, f, broadcast(2 * 6.931471880e-01f));
  // Multiplied, not added to the exponent: a NaN's payload must not turn into a number.
  return as_f32(as_u32(shifted) << 23) * fma(g, f, broadcast(2.f));
}

// e^x to about 1 ulp: 0 below -104, +inf above 88.8, exactly 1 at 0, NaN for every NaN.
WEFT_INLINE F32 exp(F32 x) {
  x = x < broadcast(-104.f) ? broadcast(-104.f) : x;  // a NaN compares false and stays
  x = x > broadcast(89.f) ? broadcast(89.f) : x;
  const F32 shifted = fma(x, broadcast(1.44269504f), broadcast(12582912.f));  // integer in the low bits
  const F32 n = shifted - 12582912.f;
  F32 r = fma(n, broadcast(-0.693145752f), x);
  r = fma(n, broadcast(-1.42860677e-6f), r);
  F32 p = broadcast(1.9875691e-4f);
  p = fma(p, r, broadcast(1.3981999e-3f));
  p = fma(p, r, broadcast(8.3334519e-3f));
  p = fma(p, r, broadcast(4.1665796e-2f));
  p = fma(p, r, broadcast(1.6666665e-1f));
  p = fma(p, r, broadcast(5.0000001e-1f));
  p = fma(p, r * r, r) + 1.f;
  // 2^n in two factors: n reaches from -150 to 128. Multiplied, not added to the exponent: a NaN stays one.
  const I32 e = reinterpret_cast<I32>(shifted) - 0x4b400000;
  const I32 half = e >> 1;
  return p * reinterpret_cast<F32>((half + 127) << 23) * reinterpret_cast<F32>((e - half + 127) << 23);
}

}  // namespace weft::tile::WEFT_ISA_NAME
