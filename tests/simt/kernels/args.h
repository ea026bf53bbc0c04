// Arguments of the kernels here, for host and kernel alike.
#pragma once

namespace weft {

struct SumArgs {
  const float* x;  // [n]
  int n;
  float* shares;      // [CTAs]
  unsigned* arrived;  // 0 before and after
  float* total;
};

// c = a b^T
struct GemmArgs {
  const void* a;  // [m, k], 16-bit floats
  const void* b;  // [n, k]
  float* c;       // [m, n]
  int m, n, k;    // k is a multiple of 8
};

// Of tests/simt/broken.cpp.
struct BrokenArgs {
  const float* x;  // [64]
  float* y;        // [64]
  unsigned* counter;
};

}  // namespace weft
