// D = A B + D by one warp: A 16 x k, B k x 8 in 16-bit floats, D 16 x 8 in fp32. With g = lane / 4 and t = lane % 4:
//   a[0], a[1]: columns 2t, 2t + 1 of rows g and g + 8;   a[2], a[3]: columns 2t + 8, 2t + 9 of the same rows
//   b[0]: rows 2t, 2t + 1 of column g;                    b[1]: rows 2t + 8, 2t + 9
//   d[0], d[1]: columns 2t, 2t + 1 of row g;              d[2], d[3]: of row g + 8
// In tf32 a register is one number: a[0], a[1] are of column t, a[2], a[3] of column t + 4; b[0] of row t, b[1] of t +
// 4.
#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

WEFT_INLINE void mma_m16n8k8_fp16(float (&d)[4], u32 a0, u32 a1, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(b));
}

WEFT_INLINE void mma_m16n8k16_fp16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if WEFT_SM >= 80
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else  // the halves of k one after the other lie in the same registers
  mma_m16n8k8_fp16(d, a[0], a[1], b0);
  mma_m16n8k8_fp16(d, a[2], a[3], b1);
#endif
}

// From sm_80 on: sm_75 has no bf16, and text that calls these does not compile for it.
#if WEFT_SM >= 80
WEFT_INLINE void mma_m16n8k8_bf16(float (&d)[4], u32 a0, u32 a1, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(b));
}
WEFT_INLINE void mma_m16n8k16_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Of a number's 24 bits the first 11 count.
WEFT_INLINE void mma_m16n8k8_tf32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

}  // namespace weft::ptx
