// The largest magnitude of a row, which integers are scaled by. Compiled once per ISA.
#pragma once

namespace weft::ops::WEFT_ISA_NAME {

// NaN when one of them is NaN, Inf when one is.
inline float largest(const float* x, long long n) {
  int most = 0;  // bits of magnitudes are in their order, those of NaN last
  for (long long i = 0; i < n; ++i) {
    const int magnitude = __builtin_bit_cast(int, x[i]) & 0x7fffffff;
    most = magnitude > most ? magnitude : most;
  }
  return __builtin_bit_cast(float, most);
}

}  // namespace weft::ops::WEFT_ISA_NAME
