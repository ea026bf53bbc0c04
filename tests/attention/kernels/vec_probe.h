// The vector vocabulary as plain functions, one set an instruction set.
#pragma once

namespace weft::testing {

struct VecProbe {
  int lanes;
  void (*exp)(const float* x, float* y);    // `lanes` numbers
  void (*expm1)(const float* x, float* y);  // likewise
  // Where bf16 has dot products; else null.
  void (*exp2_for_bf16)(const float* x, float* y);             // likewise
  void (*transpose)(const float* x, float* y);                 // lanes x lanes
  void (*sum_each)(const float* x, float* y);                  // lanes x lanes -> lanes
  void (*widen)(const void* x, int element, int n, float* y);  // 0 fp32, 1 fp16, 2 bf16, then e4m3, e5m2, int8, int4
  void (*narrow)(const float* x, int n, void* y, int element);
  void (*split_i16)(const int* x, signed char* high, signed char* low);        // `lanes` numbers
  void (*dot_shorts)(const int* acc, const void* a, const void* b, int* sum);  // `lanes` sums
};

}  // namespace weft::testing
