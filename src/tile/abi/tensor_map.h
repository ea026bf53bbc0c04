// A tensor in global memory as tensor copies see it (tile/cuda/ptx/tensor_copy.h): by coordinates, box by box. For host
// and kernel alike; jit/cuda/tensor_map.h makes maps and says what they can describe.
#pragma once

#include "tile/abi/matrix_tile.h"

namespace weft::abi {

// Dimension 0 is the one whose elements lie side by side.
struct TensorLayout {
  static constexpr int kMostDims = 5;

  void* data;                             // 16-byte aligned
  int dims;                               // 1 to 5
  int element_bytes;                      // 1, 2, 4 or 8
  unsigned long long sizes[kMostDims];    // elements
  unsigned long long strides[kMostDims];  // bytes; strides[0] is element_bytes
  int box[kMostDims];                     // elements that one copy brings, 1 to 256 of each dimension
  Swizzle swizzle;                        // of the box in shared memory; of none a box's rows follow each other

  constexpr int row_bytes() const { return box[0] * element_bytes; }
  // Of a box in shared memory, and what its mbarrier expects: also where a part of it lies outside of the tensor.
  constexpr int box_bytes() const {
    int bytes = element_bytes;
    for (int i = 0; i < dims; ++i) bytes *= box[i];
    return bytes;
  }
  friend constexpr bool operator==(const TensorLayout& a, const TensorLayout& b) {
    bool same = a.data == b.data && a.dims == b.dims && a.element_bytes == b.element_bytes && a.swizzle == b.swizzle;
    for (int i = 0; same && i < a.dims; ++i)
      same = a.sizes[i] == b.sizes[i] && a.strides[i] == b.strides[i] && a.box[i] == b.box[i];
    return same;
  }
};

// A member of a kernel's one argument. A card reads the encoded bytes, the host machine the layout.
struct alignas(128) TensorMap {
  unsigned char encoded[128];
  TensorLayout layout;
};

}  // namespace weft::abi
