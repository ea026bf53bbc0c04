#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE float from_bits(u32 bits) { return __builtin_bit_cast(float, bits); }
WEFT_INLINE u32 to_bits(float x) { return __builtin_bit_cast(u32, x); }
WEFT_INLINE float product(float a, float b) { return a * b; }
WEFT_INLINE float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
WEFT_INLINE float exp2_fast(float x) { return simt::exp2(x); }
WEFT_INLINE float log2_fast(float x) { return simt::log2(x); }
WEFT_INLINE float reciprocal_fast(float x) { return simt::reciprocal(x); }
WEFT_INLINE float tanh_fast(float x) { return simt::tanh(x); }
WEFT_INLINE float absolute(float x) { return x < 0.f ? -x : x; }
WEFT_INLINE float square_root(float x) { return simt::square_root(x); }
WEFT_INLINE float larger(float a, float b) { return a != a || b > a ? b : a; }

}  // namespace weft::ptx
