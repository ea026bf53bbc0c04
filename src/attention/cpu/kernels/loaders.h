// How the dense kernels read stored elements, and the direct kernels, which multiply keys and values where they lie.
#pragma once

#include "attention/cpu/kernels/dense.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// Products with operands of which one is a word spread over all lanes.
struct MultiplyF32 {
  static WEFT_INLINE F32 spread(const float* p) { return broadcast(*p); }
  static WEFT_INLINE F32 step(F32 acc, F32 a, F32 b) { return fma(a, b, acc); }
};
#if defined(WEFT_HAS_BF16_DOT)
struct MultiplyPairs {
  static WEFT_INLINE F32 spread(const float* p) {
    unsigned bits;
    __builtin_memcpy(&bits, p, 4);
    return as_f32(broadcast(bits));
  }
  static WEFT_INLINE F32 step(F32 acc, F32 a, F32 b) { return dot_bf16(acc, as_u32(a), as_u32(b)); }
};
#endif

// A word is what one 32-bit lane of a loaded vector carries: an element widened to fp32, or a pair of bf16 as it is
// stored. A loaded vector, of all words or the first n, has kOperands vectors of operands, made of kTokens stored rows.
template <class Type>
struct Widen : MultiplyF32 {
  static constexpr int kBits = Type::kBits, kElements = 1, kOperands = 1, kTokens = 1;
  static WEFT_INLINE F32 load(const char* p) { return Type::load(p); }
  static WEFT_INLINE F32 load(const char* p, int n) { return load_first<Type>(p, n); }
  template <int>
  static WEFT_INLINE F32 operand(F32 loaded) {
    return loaded;
  }
};
// bf16 in fp32, the even elements of a vector's pairs before the odd ones.
struct Halves : MultiplyF32 {
  static constexpr int kBits = 32, kElements = 2, kOperands = 2, kTokens = 1;
  static WEFT_INLINE U32 load(const char* p) {
    U32 loaded = load_u32(p);
    asm("" : "+v"(loaded));  // or both operands would load it
    return loaded;
  }
  static WEFT_INLINE U32 load(const char* p, int n) { return load_first_u32(p, n); }
  template <int kOperand>
  static WEFT_INLINE F32 operand(U32 loaded) {
    return kOperand == 0 ? even_bf16_to_f32(loaded) : odd_bf16_to_f32(loaded);
  }
};
#if defined(WEFT_HAS_BF16_DOT)
struct Pairs : MultiplyPairs {
  static constexpr int kBits = 32, kElements = 2, kOperands = 1, kTokens = 1;
  static WEFT_INLINE F32 load(const char* p) { return as_f32(load_u32(p)); }
  static WEFT_INLINE F32 load(const char* p, int n) { return as_f32(load_first_u32(p, n)); }
  template <int>
  static WEFT_INLINE F32 operand(F32 loaded) {
    return loaded;
  }
};
// Pairs of the same element of two tokens; of each 8 elements the first 4 before the last 4.
struct TokenPairs : MultiplyPairs {
  static constexpr int kBits = 32, kElements = 2, kOperands = 2, kTokens = 2;
  struct Loaded {
    U32 even, odd;
  };
  static WEFT_INLINE Loaded load(const char* even, const char* odd) { return {load_u32(even), load_u32(odd)}; }
  static WEFT_INLINE Loaded load(const char* even, const char* odd, int n) {
    return {load_first_u32(even, n), load_first_u32(odd, n)};
  }
  template <int kOperand>
  static WEFT_INLINE F32 operand(Loaded loaded) {
    return as_f32(kOperand == 0 ? interleave_low_shorts(loaded.even, loaded.odd)
                                : interleave_high_shorts(loaded.even, loaded.odd));
  }
};
#endif

// Of the vectors that a line of memory holds, the first: it is fetched once.
template <class Load>
constexpr bool starts_line(int word) {
  return bytes_of<Load>(word) % 64 < bytes_of<Load>(kLanes);
}

template <class Load>
void dot(const char* const* rows, long long offset, int n, Prefetcher& prefetcher, const float* q, int num_rows,
         int dim, float* scores);
template <class Load>
void accumulate(const char* const* rows, long long offset, int n, Prefetcher& prefetcher, const float* p, int num_rows,
                int dim, float* o, long long ld);

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
