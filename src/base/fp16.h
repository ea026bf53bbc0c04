// fp16 on the host, for what need not be fast: its bits as a number, and back, to nearest, ties to even.
//
//   from_fp16(0x3c00);      // 1
//   to_fp16(1.0 / 3);       // 0x3555
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace weft {

inline double from_fp16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(1024 + mantissa, exponent - 25);
}

inline uint16_t to_fp16(double x) {
  if (std::isnan(x)) return 0x7e00;
  const unsigned sign = std::signbit(x) ? 0x8000 : 0;
  const double size = std::fabs(x);
  if (size >= 65520) return static_cast<uint16_t>(sign | 0x7c00);  // nearer to 2^16, which it does not hold
  // In units of the last digit; one that is rounded up to the next exponent carries into its field.
  const int exponent = size < 0x1p-14 ? -14 : std::ilogb(size);
  const auto digits = static_cast<unsigned>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return static_cast<uint16_t>(sign | ((static_cast<unsigned>(exponent + 14) << 10) + digits));
}

}  // namespace weft
