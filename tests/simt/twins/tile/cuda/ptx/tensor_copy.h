#pragma once

#include "tile/abi/tensor_map.h"
#include "tile/cuda/ptx/bulk_copy.h"

namespace weft::ptx {

#if WEFT_SM >= 90
using abi::TensorMap;
WEFT_INLINE void prefetch_map(const TensorMap&) {}
template <int dims>
WEFT_INLINE void tensor_load(void* shared, const TensorMap& map, const int (&at)[dims], u64* barrier, CachePolicy) {
  simt::tensor_load(shared, map, at, dims, barrier);
}
template <int dims>
WEFT_INLINE void tensor_store(const TensorMap& map, const int (&at)[dims], const void* shared) {
  simt::tensor_store(map, at, dims, shared);
}
#endif

}  // namespace weft::ptx
