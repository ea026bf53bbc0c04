#pragma once

#include "tile/abi/matrix_tile.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

#if WEFT_SM >= 90
using abi::Major;
using abi::MatrixTile;
using abi::Swizzle;

template <Major major>
struct MatrixDescriptor {
  simt::Matrix matrix;
};

template <MatrixTile tile, Major major>
WEFT_INLINE MatrixDescriptor<major> matrix_descriptor(const void* data, int row, int column) {
  static_assert(tile.is_valid());
  return {{.tile = static_cast<const u8*>(data),
           .tile_bytes = tile.bytes(),
           .start = static_cast<const u8*>(data) + tile.offset(row, column),
           .leading = tile.leading(major),
           .stride = tile.stride(major),
           .swizzle = static_cast<int>(tile.swizzle),
           .along_k = major == Major::k}};
}

template <int registers>
WEFT_INLINE void hold_registers(float (&)[registers]) {}
WEFT_INLINE void hold_registers(u32 (&)[4]) {}
template <int n, class T, int m>
WEFT_INLINE void hold_registers(T (&)[m][n]) {}

WEFT_INLINE void finish_before_waiting(float) {}

template <class... Registers>
WEFT_INLINE void wgmma_fence(Registers&...) {
  simt::wgmma_fence();
}
WEFT_INLINE void wgmma_commit() { simt::wgmma_commit(); }
template <int pending, class... Registers>
WEFT_INLINE void wgmma_wait(Registers&... landed) {
  const simt::Registers all[] = {{&landed, sizeof landed}..., {nullptr, 0}};
  simt::wgmma_wait(pending, all, sizeof...(landed));
}

template <int registers, Major a_major, Major b_major>
WEFT_INLINE void wgmma_bf16(float (&d)[registers], MatrixDescriptor<a_major> a, MatrixDescriptor<b_major> b,
                            bool accumulates) {
  static_assert(abi::is_product_width(2 * registers));
  simt::wgmma(d, 2 * registers, a.matrix, b.matrix, accumulates, true);
}
template <int registers, Major a_major, Major b_major>
WEFT_INLINE void wgmma_fp16(float (&d)[registers], MatrixDescriptor<a_major> a, MatrixDescriptor<b_major> b,
                            bool accumulates) {
  static_assert(abi::is_product_width(2 * registers));
  simt::wgmma(d, 2 * registers, a.matrix, b.matrix, accumulates, false);
}
template <int registers, Major b_major>
WEFT_INLINE void wgmma_bf16(float (&d)[registers], const u32 (&a)[4], MatrixDescriptor<b_major> b, bool accumulates) {
  static_assert(abi::is_product_width(2 * registers));
  simt::wgmma(d, 2 * registers, a, b.matrix, accumulates, true);
}
template <int registers, Major b_major>
WEFT_INLINE void wgmma_fp16(float (&d)[registers], const u32 (&a)[4], MatrixDescriptor<b_major> b, bool accumulates) {
  static_assert(abi::is_product_width(2 * registers));
  simt::wgmma(d, 2 * registers, a, b.matrix, accumulates, false);
}
#endif

}  // namespace weft::ptx
