// What machines with bf16 products do in one instruction. Denormals count as zero in all of it.
#pragma once

#include "tile/cpu/vec.h"

#if defined(WEFT_ISA_avx512_bf16)
#define WEFT_HAS_BF16_DOT 1

namespace weft::tile::WEFT_ISA_NAME {

// acc[i] + a[2i] * b[2i] + a[2i+1] * b[2i+1].
WEFT_INLINE F32 dot_bf16(F32 acc, U32 a, U32 b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
}
// Rounds kLanes numbers of each to 2 * kLanes bf16.
WEFT_INLINE void store_bf16_pair(unsigned short* p, F32 first, F32 second) {
  U32 both;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(first), "v"(second));
  store_u32(p, both);
}

}  // namespace weft::tile::WEFT_ISA_NAME

#endif
