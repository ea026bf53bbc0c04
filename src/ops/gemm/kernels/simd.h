// The few vector operations that the gemm kernels are written in, per instruction set. A panel is kVecs vectors of
// kLanes outputs; an Ints holds kLanes int32, or twice as many int16, or four times as many int8.
#pragma once

#if defined(WEFT_ISA_plain)
#else
#include <immintrin.h>
#endif

namespace weft::gemm::WEFT_ISA_NAME {
namespace {

inline constexpr int kVecs = 2;

#if defined(WEFT_ISA_plain)

inline constexpr int kLanes = 4;
typedef float Floats __attribute__((vector_size(16)));
typedef int Ints __attribute__((vector_size(16)));
typedef Ints IntLanes;
typedef unsigned Words __attribute__((vector_size(16)));
typedef short Shorts __attribute__((vector_size(16)));
typedef unsigned short UShorts __attribute__((vector_size(16)));

inline Floats set(float x) { return Floats{x, x, x, x}; }
inline Ints set(int x) { return Ints{x, x, x, x}; }
inline Floats load(const float* p) {
  Floats v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline Ints load_ints(const void* p) {
  Ints v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Floats v) { __builtin_memcpy(p, &v, sizeof v); }
inline void store_ints(void* p, Ints v) { __builtin_memcpy(p, &v, sizeof v); }
inline Floats mul(Floats a, Floats b) { return a * b; }
inline Floats fma(Floats a, Floats b, Floats c) { return a * b + c; }
inline Floats to_floats(Ints v) { return __builtin_convertvector(v, Floats); }
inline Floats as_floats(Ints v) { return (Floats)v; }
inline Ints add(Ints a, Ints b) { return a + b; }
inline Ints sub(Ints a, Ints b) { return a - b; }
inline Ints bit_and(Ints a, Ints b) { return a & b; }
template <int n>
Ints shift_left(Ints v) {
  return (Ints)((Words)v << n);
}
template <int n>
Ints shift_right(Ints v) {
  return v >> n;
}
template <int n>
Ints shift_right_zero(Ints v) {
  return (Ints)((Words)v >> n);
}
template <int n>
Ints shift_left16(Ints v) {
  return (Ints)((UShorts)v << n);
}
template <int n>
Ints shift_right16(Ints v) {
  return (Ints)((Shorts)v >> n);
}
template <int n>
Ints shift_right_zero16(Ints v) {
  return (Ints)((UShorts)v >> n);
}
inline Floats load_halves(const void* p) {
  unsigned short h[4];
  __builtin_memcpy(h, p, sizeof h);
  const Words bits{h[0], h[1], h[2], h[3]};
  const Floats magnitude = (Floats)((bits & 0x7fffu) << 13) * set(0x1p112f);
  const Words special = (Words)((bits & 0x7c00u) == 0x7c00u) & 0x7f800000u;
  return (Floats)((Words)magnitude | special | (bits & 0x8000u) << 16);
}
inline Ints swap_middle(Ints v) { return __builtin_shuffle(v, Ints{0, 2, 1, 3}); }  // of each four lanes
inline int sum_lanes(Ints v) { return v[0] + v[1] + v[2] + v[3]; }
inline void store_shorts(char* p, Ints v) {
  for (int i = 0; i < kLanes; ++i) {
    const auto narrow = static_cast<short>(v[i]);
    __builtin_memcpy(p + 2 * i, &narrow, 2);
  }
}
inline void store_bytes(char* p, Ints v) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<char>(v[i]);
}
inline Ints load_bytes(const void* p) {
  signed char b[4];
  __builtin_memcpy(b, p, sizeof b);
  return Ints{b[0], b[1], b[2], b[3]};
}
inline Ints pair_dot(Ints acc, Ints w, Ints x) {
  return acc + shift_right<16>(shift_left<16>(w)) * shift_right<16>(shift_left<16>(x)) +
         shift_right<16>(w) * shift_right<16>(x);
}

#elif defined(WEFT_ISA_avx2)

inline constexpr int kLanes = 8;
typedef __m256 Floats;
typedef __m256i Ints;
typedef int IntLanes __attribute__((vector_size(32)));

inline Floats set(float x) { return _mm256_set1_ps(x); }
inline Ints set(int x) { return _mm256_set1_epi32(x); }
inline Floats load(const float* p) { return _mm256_loadu_ps(p); }
inline Ints load_ints(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
inline void store_ints(void* p, Ints v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats to_floats(Ints v) { return _mm256_cvtepi32_ps(v); }
inline Floats as_floats(Ints v) { return _mm256_castsi256_ps(v); }
inline Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints sub(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
inline Ints bit_and(Ints a, Ints b) { return _mm256_and_si256(a, b); }
template <int n>
Ints shift_left(Ints v) {
  return _mm256_slli_epi32(v, n);
}
template <int n>
Ints shift_right(Ints v) {
  return _mm256_srai_epi32(v, n);
}
template <int n>
Ints shift_right_zero(Ints v) {
  return _mm256_srli_epi32(v, n);
}
template <int n>
Ints shift_left16(Ints v) {
  return _mm256_slli_epi16(v, n);
}
template <int n>
Ints shift_right16(Ints v) {
  return _mm256_srai_epi16(v, n);
}
template <int n>
Ints shift_right_zero16(Ints v) {
  return _mm256_srli_epi16(v, n);
}
inline Floats load_halves(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
inline Ints swap_middle(Ints v) { return _mm256_shuffle_epi32(v, 0xd8); }
inline __m128i narrow(Ints v) { return _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)); }
inline void store_shorts(char* p, Ints v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(v)); }
inline void store_bytes(char* p, Ints v) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(narrow(v), narrow(v)));
}
inline int sum_lanes(Ints v) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}
inline Ints load_bytes(const void* p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))); }
inline Ints pair_dot(Ints acc, Ints w, Ints x) { return _mm256_add_epi32(acc, _mm256_madd_epi16(w, x)); }
// int16 sums of pairs of products, unsigned times signed: 8 of them hold 4-bit weights times int8 exactly.
inline Ints quad_dot16(Ints acc, Ints w, Ints x) { return _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, x)); }
inline Ints add_pairs(Ints acc) { return _mm256_madd_epi16(acc, _mm256_set1_epi16(1)); }

#else  // AVX-512

inline constexpr int kLanes = 16;
typedef __m512 Floats;
typedef __m512i Ints;
// Shifts and conversions are written as vector expressions: gcc 12 warns of the intrinsics' undefined operand.
typedef int IntLanes __attribute__((vector_size(64)));
typedef unsigned WordLanes __attribute__((vector_size(64)));
typedef short ShortLanes __attribute__((vector_size(64)));
typedef unsigned short UShortLanes __attribute__((vector_size(64)));

inline Floats set(float x) { return _mm512_set1_ps(x); }
inline Ints set(int x) { return _mm512_set1_epi32(x); }
inline Floats load(const float* p) { return _mm512_loadu_ps(p); }
inline Ints load_ints(const void* p) { return _mm512_loadu_si512(p); }
inline void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
inline void store_ints(void* p, Ints v) { _mm512_storeu_si512(p, v); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats to_floats(Ints v) { return __builtin_convertvector((IntLanes)v, Floats); }
inline Floats as_floats(Ints v) { return _mm512_castsi512_ps(v); }
inline Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints sub(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
inline Ints bit_and(Ints a, Ints b) { return _mm512_and_si512(a, b); }
template <int n>
Ints shift_left(Ints v) {
  return (Ints)((WordLanes)v << n);
}
template <int n>
Ints shift_right(Ints v) {
  return (Ints)((IntLanes)v >> n);
}
template <int n>
Ints shift_right_zero(Ints v) {
  return (Ints)((WordLanes)v >> n);
}
template <int n>
Ints shift_left16(Ints v) {
  return (Ints)((UShortLanes)v << n);
}
template <int n>
Ints shift_right16(Ints v) {
  return (Ints)((ShortLanes)v >> n);
}
template <int n>
Ints shift_right_zero16(Ints v) {
  return (Ints)((UShortLanes)v >> n);
}
inline Floats load_halves(const void* p) {
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
inline Ints swap_middle(Ints v) {
  return (Ints)__builtin_shuffle((IntLanes)v, IntLanes{0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15});
}
inline void store_shorts(char* p, Ints v) {
  const auto narrow = __builtin_convertvector((IntLanes)v, short __attribute__((vector_size(32))));
  __builtin_memcpy(p, &narrow, sizeof narrow);
}
inline void store_bytes(char* p, Ints v) {
  const auto narrow = __builtin_convertvector((IntLanes)v, signed char __attribute__((vector_size(16))));
  __builtin_memcpy(p, &narrow, sizeof narrow);
}
inline int sum_lanes(Ints v) {
  const IntLanes all = (IntLanes)v;
  const IntLanes halves = all + __builtin_shuffle(all, IntLanes{8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7});
  const IntLanes quarters =
      halves + __builtin_shuffle(halves, IntLanes{4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11});
  return quarters[0] + quarters[1] + quarters[2] + quarters[3];
}
// Two int16 products a lane.
inline Ints pair_dot(Ints acc, Ints w, Ints x) { return _mm512_dpwssd_epi32(acc, w, x); }
inline Ints load_bytes(const void* p) {
  return _mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128(static_cast<const __m128i*>(p)));
}
// Four unsigned times signed bytes a lane.
inline Ints quad_dot(Ints acc, Ints w, Ints x) { return _mm512_dpbusd_epi32(acc, w, x); }
#if defined(WEFT_ISA_avx512_bf16)
inline Floats bf16_dot(Floats acc, Ints w, Ints x) { return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x); }
#endif

#endif

inline constexpr int kPanel = kLanes * kVecs;
// Rows of a tile: its sums, the weights of a step and an activation fill the registers. Two thirds of them still hide
// the latency of a product. With 32 registers small tiles of integers hold their sums in fp32 in them, too: more loads
// for each product, and no stores after a block of them.
#if defined(WEFT_ISA_plain) || defined(WEFT_ISA_avx2)
inline constexpr int kTileRows = 6, kSmallTileRows = 6, kMostHeldRows = 0;
#else
inline constexpr int kTileRows = 12, kSmallTileRows = 6, kMostHeldRows = 6;
#endif
inline constexpr int kLowTileRows = kTileRows * 2 / 3, kLowSmallTileRows = kSmallTileRows * 2 / 3;
template <int kRows>
inline constexpr bool kHoldsSums = kRows <= kMostHeldRows;
inline constexpr int kVecBytes = kLanes * 4;

// A value that the compiler must have here: without it gcc gathers a chain of sums at its end and spills the products.
template <class T>
inline T settled(T value) {
#if defined(WEFT_ISA_avx2)
  asm("" : "+x"(value));
#elif !defined(WEFT_ISA_plain)
  asm("" : "+v"(value));
#endif
  return value;
}

inline Ints broadcast(const char* p) {
  int word;
  __builtin_memcpy(&word, p, sizeof word);
  return set(word);
}

}  // namespace
}  // namespace weft::gemm::WEFT_ISA_NAME
