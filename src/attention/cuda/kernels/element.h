// Elements of tensors by their place in a row, whatever their type.
#pragma once

#include "tile/cuda/convert.h"

namespace weft::attention::cuda {

// Element i of a row, as a float.
template <class T>
WEFT_INLINE float element(const char* row, int i) {
  return tile::to_float(reinterpret_cast<const T*>(row)[i]);
}
template <>
WEFT_INLINE float element<int4x2>(const char* row, int i) {
  const int byte = reinterpret_cast<const signed char*>(row)[i / 2];
  return static_cast<float>(i % 2 == 0 ? static_cast<signed char>(byte << 4) >> 4 : byte >> 4);
}

}  // namespace weft::attention::cuda
