// Element types in memory, as vectors of fp32: load, store (round to nearest, ties to even).
#pragma once

#include "tile/cpu/lanes.h"

namespace weft::tile::WEFT_ISA_NAME {

// ---------------------------------------------------------------- bits to numbers

// Compilers take three times the instructions for __builtin_convertvector.
#if WEFT_LANES == 16
typedef short I16x16 __attribute__((vector_size(32)));
WEFT_INLINE U32 widen_u16(U16 v) {
  return reinterpret_cast<U32>(__builtin_ia32_pmovzxwd512_mask(reinterpret_cast<I16x16>(v), I32{}, -1));
}
#elif WEFT_LANES == 8
typedef short I16x8 __attribute__((vector_size(16)));
WEFT_INLINE U32 widen_u16(U16 v) {
  return reinterpret_cast<U32>(__builtin_ia32_pmovzxwd256(reinterpret_cast<I16x8>(v)));
}
#else
WEFT_INLINE U32 widen_u16(U16 v) { return __builtin_convertvector(v, U32); }
#endif

#if WEFT_LANES == 16
// To the high half of each lane, the low one being zero: one instruction, where widening and shifting takes two.
typedef short I16x32 __attribute__((vector_size(64)));
typedef int I32x8 __attribute__((vector_size(32)));
WEFT_INLINE F32 bf16_to_f32(U16 bits) {
  constexpr I16x32 kFrom = {0, 0, 0, 1, 0, 2,  0, 3,  0, 4,  0, 5,  0, 6,  0, 7,
                            0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};
  const auto wide = reinterpret_cast<I16x32>(__builtin_ia32_si512_256si(reinterpret_cast<I32x8>(bits)));
  return reinterpret_cast<F32>(__builtin_ia32_permvarhi512_mask(wide, kFrom, I16x32{}, 0xaaaaaaaau));
}
#else
WEFT_INLINE F32 bf16_to_f32(U16 bits) { return as_f32(widen_u16(bits) << 16); }
#endif

// Of two neighbours in a lane, as they are stored: one instruction each, where widening them in order takes two.
WEFT_INLINE F32 even_bf16_to_f32(U32 pairs) { return as_f32(pairs << 16); }
WEFT_INLINE F32 odd_bf16_to_f32(U32 pairs) { return as_f32(pairs & 0xffff0000u); }

WEFT_INLINE U16 f32_to_bf16(F32 v) {
  const U32 bits = as_u32(v);
  const U32 rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const U32 quiet = bits >> 16 | 0x40u;
  return __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded, U16);
}

#if WEFT_LANES == 16
WEFT_INLINE F32 fp16_to_f32(U16 bits) {
  return __builtin_ia32_vcvtph2ps512_mask(reinterpret_cast<I16x16>(bits), F32{}, -1, 4);
}
WEFT_INLINE U16 f32_to_fp16(F32 v) {
  return reinterpret_cast<U16>(__builtin_ia32_vcvtps2ph512_mask(v, 0, I16x16{}, -1));
}
#elif WEFT_LANES == 8
WEFT_INLINE F32 fp16_to_f32(U16 bits) { return __builtin_ia32_vcvtph2ps256(reinterpret_cast<I16x8>(bits)); }
WEFT_INLINE U16 f32_to_fp16(F32 v) { return reinterpret_cast<U16>(__builtin_ia32_vcvtps2ph256(v, 0)); }
#else
WEFT_INLINE F32 fp16_to_f32(U16 bits) {
  const U32 h = __builtin_convertvector(bits, U32);
  // The exponent is 112 too low: a multiplication mends it, for denormals too.
  const F32 finite = as_f32((h & 0x7fffu) << 13) * 0x1p112f;
  const U32 special = ((h & 0x7fffu) << 13) | 0x7f800000u;
  const U32 magnitude = (h & 0x7c00u) == 0x7c00u ? special : as_u32(finite);
  return as_f32(magnitude | (h & 0x8000u) << 16);
}
WEFT_INLINE U16 f32_to_fp16(F32 v) {
  const U32 bits = as_u32(v);
  const U32 magnitude = bits & 0x7fffffffu;
  const U32 normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  const U32 denormal = as_u32(as_f32(magnitude) + 0.5f) - 0x3f000000u;  // 0.5 has an ulp of 2^-24
  const U32 inf_nan = magnitude > 0x7f800000u ? broadcast(0x7e00u) : broadcast(0x7c00u);
  U32 h = magnitude < 0x38800000u ? denormal : normal;
  h = magnitude >= 0x47800000u ? inf_nan : h;
  return __builtin_convertvector(h | (bits >> 16 & 0x8000u), U16);
}
#endif

// The low 16 or 8 bits of each lane.
typedef unsigned char U8 __attribute__((vector_size(WEFT_LANES)));
typedef signed char I8 __attribute__((vector_size(WEFT_LANES)));
typedef short I16 __attribute__((vector_size(2 * WEFT_LANES)));
#if WEFT_LANES == 8
typedef int I32x4 __attribute__((vector_size(16)));
typedef char Char16 __attribute__((vector_size(16)));
WEFT_INLINE U16 low_u16(U32 v) {
  const I32 low = reinterpret_cast<I32>(v << 16) >> 16;  // or it would saturate
  return reinterpret_cast<U16>(__builtin_ia32_packssdw128(__builtin_shufflevector(low, low, 0, 1, 2, 3),
                                                          __builtin_shufflevector(low, low, 4, 5, 6, 7)));
}
WEFT_INLINE U8 low_u8(U32 v) {
  const auto low = reinterpret_cast<I16x8>(low_u16(v & 0xffu));
  const Char16 twice = __builtin_ia32_packuswb128(low, low);
  return reinterpret_cast<U8>(__builtin_shufflevector(twice, twice, 0, 1, 2, 3, 4, 5, 6, 7));
}
#elif WEFT_LANES == 16
typedef char Char16 __attribute__((vector_size(16)));
WEFT_INLINE U16 low_u16(U32 v) {
  return reinterpret_cast<U16>(__builtin_ia32_pmovdw512_mask(reinterpret_cast<I32>(v), I16x16{}, -1));
}
WEFT_INLINE U8 low_u8(U32 v) {
  return reinterpret_cast<U8>(__builtin_ia32_pmovdb512_mask(reinterpret_cast<I32>(v), Char16{}, -1));
}
#else
WEFT_INLINE U16 low_u16(U32 v) { return __builtin_convertvector(v, U16); }
WEFT_INLINE U8 low_u8(U32 v) { return __builtin_convertvector(v, U8); }
#endif
WEFT_INLINE void store_u8(void* p, U8 v) { __builtin_memcpy(p, &v, sizeof v); }

// A number of 16 bits as 256 * high + low, both of them signed bytes. The low 16 bits of `raised` are the number plus
// 128.
struct SplitI16 {
  U8 high, low;
};
WEFT_INLINE SplitI16 split_i16(U32 raised) { return {low_u8(raised >> 8), low_u8(raised ^ 0x80u)}; }

// ---------------------------------------------------------------- elements in memory

// Of n elements of a row.
template <class Element>
constexpr long long bytes_of(long long n) {
  return n * Element::kBits / 8;
}

// load and store take kLanes elements, load_half 8 of them (kLanes is 16: head dims are multiples of 8), the other
// lanes being zero; of fp32 store_half, too. Narrower machines have no halves.
#if WEFT_LANES == 16
WEFT_INLINE U16 load_half_u16(const void* p) {
  const U16x8 low = *static_cast<const U16x8Memory*>(p);
  return __builtin_shufflevector(low, U16x8{}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#endif

struct Fp32 {
  static constexpr int kBits = 32;
  static WEFT_INLINE F32 load(const void* p) { return *static_cast<const F32Memory*>(p); }
  static WEFT_INLINE void store(void* p, F32 v) { *static_cast<F32Memory*>(p) = v; }
#if WEFT_LANES == 16
  static WEFT_INLINE F32 load_half(const void* p) {
    const F32x8 low = *static_cast<const F32x8Memory*>(p);
    return __builtin_shufflevector(low, F32x8{}, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  static WEFT_INLINE void store_half(void* p, F32 v) {
    *static_cast<F32x8Memory*>(p) = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  }
#endif
};

struct Fp16 {
  static constexpr int kBits = 16;
  static WEFT_INLINE F32 load(const void* p) { return fp16_to_f32(load_u16(p)); }
  static WEFT_INLINE void store(void* p, F32 v) { store_u16(p, f32_to_fp16(v)); }
#if WEFT_LANES == 16
  static WEFT_INLINE F32 load_half(const void* p) { return fp16_to_f32(load_half_u16(p)); }
#endif
};

struct Bf16 {
  static constexpr int kBits = 16;
  static WEFT_INLINE F32 load(const void* p) { return bf16_to_f32(load_u16(p)); }
  static WEFT_INLINE void store(void* p, F32 v) { store_u16(p, f32_to_bf16(v)); }
#if WEFT_LANES == 16
  static WEFT_INLINE F32 load_half(const void* p) { return bf16_to_f32(load_half_u16(p)); }
#endif
};

// Numbers of fewer bits are stored by other code; here they are only read. A row of them starts on a byte.

typedef signed char I8Memory __attribute__((vector_size(WEFT_LANES), aligned(1), may_alias));
#if WEFT_LANES == 16
WEFT_INLINE I32 widen_i8(I8 v) { return __builtin_ia32_pmovsxbd512_mask(reinterpret_cast<Char16>(v), I32{}, -1); }
#elif WEFT_LANES == 8
WEFT_INLINE I32 widen_i8(I8 v) {
  return __builtin_ia32_pmovsxbd256(
      reinterpret_cast<Char16>(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7)));
}
#else
WEFT_INLINE I32 widen_i8(I8 v) { return __builtin_convertvector(v, I32); }
#endif
// Each byte as the high half of 16 bits.
WEFT_INLINE U16 load_high_bytes(const void* p) {
  const I8 v = *static_cast<const I8Memory*>(p);
  return __builtin_convertvector(reinterpret_cast<U8>(v), U16) << 8;
}

struct Int8 {
  static constexpr int kBits = 8;
  static WEFT_INLINE F32 load(const void* p) { return to_f32(widen_i8(*static_cast<const I8Memory*>(p))); }
};

// Two a byte, the low half first.
struct Int4 {
  static constexpr int kBits = 4;
  static WEFT_INLINE F32 load(const void* p) { return load(p, AllLanes()); }

 private:
  template <int... I>
  static WEFT_INLINE F32 load(const void* p, Lanes<I...>) {
    unsigned words[(WEFT_LANES + 7) / 8] = {};
    __builtin_memcpy(words, p, WEFT_LANES / 2);
    const U32 bits = {words[I / 8]...};
    return to_f32(reinterpret_cast<I32>(bits << U32{(28u - 4u * (I % 8))...}) >> 28);
  }
};

// An fp16 whose low byte is cut off.
struct E5m2 {
  static constexpr int kBits = 8;
  static WEFT_INLINE F32 load(const void* p) { return fp16_to_f32(load_high_bytes(p)); }
};

// 4 bits of exponent where fp16 has 5, and a bias of 7 where it has 15; no infinities, one NaN of either sign.
struct E4m3 {
  static constexpr int kBits = 8;
  static WEFT_INLINE F32 load(const void* p) {
    const U16 bits = load_high_bytes(p);
    const U16 number = reinterpret_cast<U16>(reinterpret_cast<I16>(bits) >> 1) & static_cast<unsigned short>(0xbf80);
    const U16 nan = U16{} + static_cast<unsigned short>(0x7e00);
    const U16 half = (bits & static_cast<unsigned short>(0x7f00)) == static_cast<unsigned short>(0x7f00) ? nan : number;
    return fp16_to_f32(half) * 256.f;
  }
};

// Calls full(offset) for each kLanes elements of [0, n), then half(offset) for 8 that are left.
template <class Full, class Half>
WEFT_INLINE void for_lanes(int n, const Full& full, [[maybe_unused]] const Half& half) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) full(i);
#if WEFT_LANES == 16
  if (i < n) half(i);
#endif
}

// The first n elements, fewer than kLanes; the other lanes are zero.
template <class Element>
WEFT_INLINE F32 load_first(const char* p, int n) {
  alignas(64) char buffer[WEFT_LANES * 4] = {};
  __builtin_memcpy(buffer, p, static_cast<unsigned long>(bytes_of<Element>(n)));
  return Element::load(buffer);
}

// The first n lanes of 32 bits, fewer than kLanes; the others are zero.
WEFT_INLINE U32 load_first_u32(const char* p, int n) {
#if WEFT_LANES == 16
  return reinterpret_cast<U32>(__builtin_ia32_loaddqusi512_mask(reinterpret_cast<const int*>(p), I32{},
                                                                static_cast<unsigned short>((1 << n) - 1)));
#else
  alignas(64) char buffer[WEFT_LANES * 4] = {};
  __builtin_memcpy(buffer, p, static_cast<unsigned long>(4 * n));
  return load_u32(buffer);
#endif
}

// n elements to fp32 and back.
template <class Element>
WEFT_INLINE void widen(const char* from, long long n, float* to) {
  long long i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, Element::load(from + bytes_of<Element>(i)));
  if (i == n) return;
  const int count = static_cast<int>(n - i);
  float rest[kLanes];
  store(rest, load_first<Element>(from + bytes_of<Element>(i), count));
  __builtin_memcpy(to + i, rest, static_cast<unsigned long>(count) * sizeof(float));
}
template <class Element>
WEFT_INLINE void narrow(const float* from, long long n, char* to) {
  long long i = 0;
  for (; i + kLanes <= n; i += kLanes) Element::store(to + bytes_of<Element>(i), load(from + i));
  if (i == n) return;
  const auto count = static_cast<unsigned long>(n - i);
  float rest[kLanes] = {};
  char narrowed[kLanes * 4];
  __builtin_memcpy(rest, from + i, count * sizeof(float));
  Element::store(narrowed, load(rest));
  __builtin_memcpy(to + bytes_of<Element>(i), narrowed, static_cast<unsigned long>(bytes_of<Element>(n - i)));
}

}  // namespace weft::tile::WEFT_ISA_NAME
