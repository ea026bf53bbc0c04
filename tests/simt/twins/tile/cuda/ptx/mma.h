#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE void mma_m16n8k8_fp16(float (&d)[4], u32 a0, u32 a1, u32 b) {
  const u32 a[] = {a0, a1};
  simt::mma_m16n8(d, a, &b, 8, false);
}
WEFT_INLINE void mma_m16n8k16_fp16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if WEFT_SM >= 80
  const u32 b[] = {b0, b1};
  simt::mma_m16n8(d, a, b, 16, false);
#else  // rounded between the halves
  mma_m16n8k8_fp16(d, a[0], a[1], b0);
  mma_m16n8k8_fp16(d, a[2], a[3], b1);
#endif
}
#if WEFT_SM >= 80
WEFT_INLINE void mma_m16n8k8_bf16(float (&d)[4], u32 a0, u32 a1, u32 b) {
  const u32 a[] = {a0, a1};
  simt::mma_m16n8(d, a, &b, 8, true);
}
WEFT_INLINE void mma_m16n8k16_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 b[] = {b0, b1};
  simt::mma_m16n8(d, a, b, 16, true);
}
WEFT_INLINE void mma_m16n8k8_tf32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 b[] = {b0, b1};
  simt::mma_m16n8k8_tf32(d, a, b);
}
#endif

}  // namespace weft::ptx
