// Matrices of 8 x 8 16-bit elements from shared memory to registers, in the layout that mma.h multiplies.
// Lane l gives the address of row l % 8 of matrix l / 8: 16 bytes, 16-byte aligned. Register m of lane l then holds
// elements 2 (l % 4) and the next of row l / 4 of matrix m; transposed, of column l / 4.
#pragma once

#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

WEFT_INLINE void ldmatrix_x4(u32 (&r)[4], SharedPlace row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
WEFT_INLINE void ldmatrix_x4_trans(u32 (&r)[4], SharedPlace row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
WEFT_INLINE void ldmatrix_x4(u32 (&r)[4], const void* row) { ldmatrix_x4(r, shared_address(row)); }
WEFT_INLINE void ldmatrix_x4_trans(u32 (&r)[4], const void* row) { ldmatrix_x4_trans(r, shared_address(row)); }

}  // namespace weft::ptx
