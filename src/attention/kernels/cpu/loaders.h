// How the dense kernels read stored elements, and the direct kernels, which multiply keys and values where they lie.
#pragma once

#include "attention/kernels/cpu/dense.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// A unit is what one 32-bit lane carries: an element widened to fp32, or a pair of bf16 as it is stored.
template <class Type>
struct Widen {
  static constexpr int kBits = Type::kBits, kElements = 1;
  static WEFT_INLINE F32 load(const char* p) { return Type::load(p); }
  static WEFT_INLINE F32 step(F32 acc, F32 a, F32 b) { return fma(a, b, acc); }
};
#if defined(WEFT_HAS_BF16_DOT)
struct Pairs {
  static constexpr int kBits = 32, kElements = 2;
  static WEFT_INLINE F32 load(const char* p) { return as_f32(load_u32(p)); }
  static WEFT_INLINE F32 step(F32 acc, F32 a, F32 b) { return dot_bf16(acc, as_u32(a), as_u32(b)); }
};
#endif

template <class Load>
void direct_dot(const char* const* rows, long long offset, int n, Ahead& ahead, const float* q, int num_rows, int dim,
                float* scores);
template <class Type>
void direct_accumulate(const char* const* rows, long long offset, int n, Ahead& ahead, const float* p,
                       const float* alpha, int num_rows, int dim, float* o, long long ld);

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
