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

// Eight on every machine, for sums that have the same bits on all of them. No function returns such a vector: without
// AVX that would be another calling convention.
typedef float F32x8 __attribute__((vector_size(32)));
typedef unsigned U32x8 __attribute__((vector_size(32)));
typedef unsigned short U16x8 __attribute__((vector_size(16)));
typedef float F32x8Memory __attribute__((vector_size(32), aligned(4), may_alias));
typedef unsigned short U16x8Memory __attribute__((vector_size(16), aligned(2), may_alias));

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

WEFT_INLINE F32 to_f32(I32 v) { return __builtin_convertvector(v, F32); }
WEFT_INLINE F32 as_f32(U32 v) { return reinterpret_cast<F32>(v); }
WEFT_INLINE U32 as_u32(F32 v) { return reinterpret_cast<U32>(v); }

// The larger lane; b where either is NaN.
WEFT_INLINE F32 max(F32 a, F32 b) { return a > b ? a : b; }
WEFT_INLINE U32 max(U32 a, U32 b) { return a > b ? a : b; }

// Into the second-level cache, for what is needed later; into the first, for what is needed next.
WEFT_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }
WEFT_INLINE void prefetch_near(const void* p) { __builtin_prefetch(p, 0, 3); }

}  // namespace weft::tile::WEFT_ISA_NAME
