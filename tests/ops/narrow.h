// Numbers of 8 and 4 bits as a standard defines them, for tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "weft/tensor.h"

namespace weft {

// Number i of packed bytes.
inline double stored(const std::vector<uint8_t>& cache, DType dtype, int64_t i) {
  const auto at = [&](int64_t byte) { return cache[static_cast<size_t>(byte)]; };
  if (dtype == DType::int8) return static_cast<int8_t>(at(i));
  if (dtype == DType::int4) return static_cast<int8_t>(at(i / 2) << (i % 2 == 0 ? 4 : 0)) >> 4;
  const int code = at(i), mantissa_bits = dtype == DType::fp8_e4m3 ? 3 : 2, bias = dtype == DType::fp8_e4m3 ? 7 : 15;
  const int exponent = (code & 127) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  if (dtype == DType::fp8_e4m3 ? (code & 127) == 127 : exponent == 31 && mantissa != 0) return NAN;
  const double x = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                 : std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  return code < 128 ? x : -x;
}
struct Narrow {
  DType dtype;
  double most;
};
inline constexpr Narrow kNarrow[] = {
    {DType::int8, 127}, {DType::int4, 7}, {DType::fp8_e4m3, 448}, {DType::fp8_e5m2, 57344}};

// Half the distance of neighbours at x, and a little for the product with the inverse of the scale.
inline double half_step(DType dtype, double x) {
  if (dtype == DType::int8 || dtype == DType::int4) return 0.5 * (1 + 1e-4);
  const int bits = dtype == DType::fp8_e4m3 ? 3 : 2, least = dtype == DType::fp8_e4m3 ? -6 : -14;
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(0.5, std::max(exponent - 1, least) - bits) * (1 + 1e-4);
}

}  // namespace weft
