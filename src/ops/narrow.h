// Numbers of 8 and 4 bits and their scales, a row at a time: what page append and quantize share.
#pragma once

#include <cstdint>

#include "weft/tensor.h"

namespace weft::ops {

bool is_narrow(DType dtype);        // fp8_e4m3, fp8_e5m2, int8 or int4
float largest_number(DType dtype);  // that is finite; of integers as far as it has a negative

// For numbers up to a magnitude, x ~ scale * number: 0 below 1e-30, whose inverse would overflow, and NaN where the
// magnitude is not finite. No finite magnitude comes back as Inf.
float scale_for(DType dtype, float magnitude);
// What x is multiplied by: one by the scale, and 0 where that is 0 or NaN.
inline float factor_of(float scale) { return scale > 0.f ? 1.f / scale : 0.f; }

void to_narrow(DType dtype, const float* from, int64_t n, float factor, void* to);
void from_narrow(DType dtype, const void* from, int64_t n, float scale, float* to);

// The larger of two magnitudes; NaN where one is NaN.
inline float larger(float a, float b) { return a > b || a != a ? a : b; }

}  // namespace weft::ops
