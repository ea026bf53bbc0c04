// What the float math of variants (tile/variant/float_math.h) takes from a compiler for CPUs.
// Part of the generated text, so it includes nothing.
#pragma once

namespace weft {

WEFT_INLINE float infinity() { return __builtin_inff(); }
WEFT_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }

namespace detail {
WEFT_INLINE float not_a_number() { return __builtin_nanf(""); }
WEFT_INLINE float from_bits(unsigned x) { return __builtin_bit_cast(float, x); }
WEFT_INLINE unsigned to_bits(float x) { return __builtin_bit_cast(unsigned, x); }
}  // namespace detail

}  // namespace weft
