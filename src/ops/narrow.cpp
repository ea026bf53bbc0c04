#include "ops/narrow.h"

#include <cmath>
#include <limits>

#include "ops/elementwise.h"

namespace weft::ops {

bool is_narrow(DType dtype) {
  return dtype == DType::fp8_e4m3 || dtype == DType::fp8_e5m2 || dtype == DType::int8 || dtype == DType::int4;
}

float largest_number(DType dtype) {
  switch (dtype) {
    case DType::int8: return 127.f;
    case DType::int4: return 7.f;
    case DType::fp8_e4m3: return 448.f;
    default: return 57344.f;
  }
}

float scale_for(DType dtype, float magnitude) {
  constexpr float kSmallest = 1e-30f, kMost = std::numeric_limits<float>::max();
  if (!(magnitude <= kMost)) return std::numeric_limits<float>::quiet_NaN();
  if (magnitude < kSmallest) return 0.f;
  const float largest = largest_number(dtype), scale = magnitude / largest;
  return scale * largest <= kMost ? scale : std::nextafter(scale, 0.f);  // a quotient that was rounded up
}

void to_narrow(DType dtype, const float* from, int64_t n, float factor, void* to) {
  const ElementwiseTable& loops = elementwise();
  auto* bytes = static_cast<unsigned char*>(to);
  switch (dtype) {
    case DType::int8: return loops.to_int8(from, n, factor, bytes);
    case DType::int4: return loops.to_int4(from, n, factor, bytes);
    case DType::fp8_e4m3: return loops.to_e4m3(from, n, factor, bytes);
    default: return loops.to_e5m2(from, n, factor, bytes);
  }
}

void from_narrow(DType dtype, const void* from, int64_t n, float scale, float* to) {
  const ElementwiseTable& loops = elementwise();
  const auto* bytes = static_cast<const unsigned char*>(from);
  switch (dtype) {
    case DType::int8: return loops.from_int8(bytes, n, scale, to);
    case DType::int4: return loops.from_int4(bytes, n, scale, to);
    case DType::fp8_e4m3: return loops.from_e4m3(bytes, n, scale, to);
    default: return loops.from_e5m2(bytes, n, scale, to);
  }
}

}  // namespace weft::ops
