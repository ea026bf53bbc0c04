// The math of a variant's text in double, through the C library.
// Part of the generated text, so it includes nothing.
#pragma once

namespace weft {

namespace detail {
static const abi::ReferenceMath* math = nullptr;
inline void use_math(const abi::ReferenceMath* functions) { math = functions; }
}  // namespace detail

inline double infinity() { return __builtin_inf(); }
inline double exp(double x) { return detail::math->exp(x); }
inline double exp2(double x) { return detail::math->exp2(x); }
inline double log(double x) { return detail::math->log(x); }
inline double tanh(double x) { return detail::math->tanh(x); }
inline double fast_tanh(double x) { return tanh(x); }
inline double sigmoid(double x) { return 1. / (1. + exp(-x)); }
inline double sin(double x) { return detail::math->sin(x); }
inline double cos(double x) { return detail::math->cos(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }
inline double rsqrt(double x) { return 1. / __builtin_sqrt(x); }

}  // namespace weft
