// Elements of tensors as kernels see them: bits with a type. What they are worth: tile/cuda/convert.h.
#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft {

struct fp16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct fp8_e4m3 {
  u8 bits;
};
struct fp8_e5m2 {
  u8 bits;
};
// Two a byte, the even one low; two's complement.
struct int4x2 {
  u8 bits;
};

// What one instruction loads or stores at most.
struct alignas(16) Bytes16 {
  u32 word[4];
};

}  // namespace weft
