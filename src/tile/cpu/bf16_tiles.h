// Tiles of registers, of machines that multiply two of them in one instruction (AMX). Denormals count as zero in that.
//
//   configure_tiles();                               // all of kTileRows x kTileBytes
//   zero_tile<0>();
//   load_tile<4>(a, stride_of_a);                    // 16 rows of 32 bf16
//   load_tile<6>(b, stride_of_b);                    // 16 rows of 16 pairs: elements 2i, 2i + 1 of 16 columns
//   multiply_tiles<0, 4, 6>();                       // 16 x 16 sums += a . b
//   store_tile<0>(c, stride_of_c);
//   release_tiles();
#pragma once

#include "tile/cpu/bf16_dot.h"

#if defined(WEFT_HAS_BF16_DOT)
#define WEFT_HAS_BF16_TILES 1

namespace weft::tile::WEFT_ISA_NAME {

inline constexpr int kTileRows = 16, kTileBytes = 64;

// The thread's tile registers are in use from here on, ...
inline void configure_tiles() {
  struct alignas(64) Shapes {
    unsigned char palette = 1, start_row = 0, reserved[14] = {};
    unsigned short row_bytes[16] = {};
    unsigned char rows[16] = {};
  } shapes;
  for (int i = 0; i < 8; ++i) {
    shapes.row_bytes[i] = kTileBytes;
    shapes.rows[i] = kTileRows;
  }
  asm volatile("ldtilecfg %0" ::"m"(shapes));
}
// ... until here: the system has less to save then.
WEFT_INLINE void release_tiles() { asm volatile("tilerelease"); }

template <int kTile>
WEFT_INLINE void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// stride: bytes from row to row.
template <int kTile>
WEFT_INLINE void load_tile(const void* p, long long stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(p), "r"(stride) : "memory");
}
template <int kTile>
WEFT_INLINE void store_tile(void* p, long long stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(p), "r"(stride) : "memory");
}
template <int kSums, int kLeft, int kRight>
WEFT_INLINE void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kLeft), "i"(kRight));
}

}  // namespace weft::tile::WEFT_ISA_NAME

#endif
