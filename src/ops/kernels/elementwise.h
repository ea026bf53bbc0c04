// Loops over one row, compiled once per instruction set from plain scalar code that the compiler vectorises.
#pragma once

#include "device/cpu/built_isas.h"

namespace weft::ops {

struct ElementwiseTable {
  // y = x * weight / sqrt(mean(x^2) + eps).
  void (*rms_norm)(const float* x, const float* weight, long long dim, float eps, float* y);
  void (*add)(const float* x, long long n, float* to);  // to += x
  void (*silu_and_mul)(const float* gate, const float* up, long long n, float* y);
  void (*gelu_tanh_and_mul)(const float* gate, const float* up, long long n, float* y);
  void (*soft_cap)(float* x, long long n, float cap);
  void (*scale)(float* x, long long n, float factor);
  // x[0..2 * pairs) turned by cos, sin [pairs].
  void (*rotate_adjacent)(float* x, const float* cos, const float* sin, long long pairs);
  void (*rotate_halves)(float* x, const float* cos, const float* sin, long long pairs);
  // Nearest, ties to even; too large is Inf, NaN stays NaN.
  void (*to_bf16)(const float* from, long long n, unsigned short* to);
  void (*to_fp16)(const float* from, long long n, unsigned short* to);
  void (*from_bf16)(const unsigned short* from, long long n, float* to);
  void (*from_fp16)(const unsigned short* from, long long n, float* to);
  // low = min(low, x), high = max(high, x); a NaN in x makes both NaN.
  void (*extend_range)(const float* x, long long n, float* low, float* high);
  // The greatest bf16 that is not above a number, and the least that is not below; NaN stays NaN.
  void (*to_bf16_below)(const float* from, long long n, unsigned short* to);
  void (*to_bf16_above)(const float* from, long long n, unsigned short* to);
  // The largest x . y of a y between low and high: of each element low where x is negative, else high.
  float (*bound_dot)(const float* x, const float* low, const float* high, long long n);
  float (*largest)(const float* x, long long n);  // magnitude; NaN where one is NaN
  // factor * number to the nearest, ties to even; too large is the largest finite one, NaN is 0, and of fp8 NaN.
  // int4: two a byte, the even one low; n is even.
  void (*to_int8)(const float* from, long long n, float factor, unsigned char* to);
  void (*to_int4)(const float* from, long long n, float factor, unsigned char* to);
  void (*to_e4m3)(const float* from, long long n, float factor, unsigned char* to);
  void (*to_e5m2)(const float* from, long long n, float factor, unsigned char* to);
  // scale * number.
  void (*from_int8)(const unsigned char* from, long long n, float scale, float* to);
  void (*from_int4)(const unsigned char* from, long long n, float scale, float* to);
  void (*from_e4m3)(const unsigned char* from, long long n, float scale, float* to);
  void (*from_e5m2)(const unsigned char* from, long long n, float scale, float* to);
};

WEFT_DECLARE_PER_ISA(const ElementwiseTable elementwise)

}  // namespace weft::ops
