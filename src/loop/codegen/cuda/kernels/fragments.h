// Products of 16-bit floats by warps on sums that the threads of a CTA hold together: what generated text calls where
// a nest is annotated `mma` (loop/threads/fragments.h says which thread holds what).
//
//   float c[16];                                                    // of 32 x 32, by 2 x 2 warps
//   multiply<true, 1, 2, 2, 2, 64, true, false>(c, a, 72, b, 40);
#pragma once

#include "tile/cuda/ptx/cp_async.h"
#include "tile/cuda/ptx/ldmatrix.h"
#include "tile/cuda/ptx/mma.h"

namespace weft::loop {

// Four matrices of 8 x 8 for an operand of mma: rows o to o + 15 and depths k to k + 15 of a tile in shared memory,
// whose depths lie side by side, or else its rows. `step`: elements from one row, or depth, to the next.
// kDepthFirst: the second matrix is the first one's in depth, as B's registers are; else its neighbour in rows, as A's.
template <bool kDepthsSideBySide, bool kDepthFirst, class T>
WEFT_INLINE void load_matrices(u32 (&x)[4], const T* tile, int step, int o, int k, bool is_half) {
  const int lane = ptx::lane(), matrix = lane / 8;
  int below = kDepthFirst ? matrix / 2 : matrix % 2;
  const int deeper = kDepthFirst ? matrix % 2 : matrix / 2;
  if (is_half) below = 0;  // there are 8 rows
  if constexpr (kDepthsSideBySide)
    ptx::ldmatrix_x4(x, tile + (o + below * 8 + lane % 8) * step + k + deeper * 8);
  else
    ptx::ldmatrix_x4_trans(x, tile + (k + deeper * 8 + lane % 8) * step + o + below * 8);
}

template <bool kIsBf16>
WEFT_INLINE void multiply_tile(float* c, const u32 (&a)[4], u32 b0, u32 b1) {
  float d[4] = {c[0], c[1], c[2], c[3]};
  if constexpr (kIsBf16)
    ptx::mma_m16n8k16_bf16(d, a, b0, b1);
  else
    ptx::mma_m16n8k16_fp16(d, a, b0, b1);
  WEFT_UNROLL
  for (int i = 0; i < 4; ++i) c[i] = d[i];
}

// c[m, n] += a[m, k] * b[n, k] for kTilesM x kTilesN tiles of 16 x 8 of each of kWarpsM x kWarpsN warps.
template <bool kIsBf16, int kTilesM, int kTilesN, int kWarpsM, int kWarpsN, int kDepth, bool kDepthsOfA,
          bool kDepthsOfB, class T>
WEFT_INLINE void multiply(float (&c)[kTilesM * kTilesN * 4], const T* a, int a_step, const T* b, int b_step) {
  const int warp = ptx::warp();
  if (warp >= kWarpsM * kWarpsN) return;
  const int m = warp / kWarpsN * kTilesM * 16, n = warp % kWarpsN * kTilesN * 8;
  WEFT_UNROLL
  for (int k = 0; k < kDepth; k += 16) {
    u32 x[kTilesM][4];
    WEFT_UNROLL
    for (int i = 0; i < kTilesM; ++i) load_matrices<kDepthsOfA, false>(x[i], a, a_step, m + i * 16, k, false);
    WEFT_UNROLL
    for (int j = 0; j < kTilesN; j += 2) {
      const bool is_last = j + 1 == kTilesN;
      u32 y[4];
      load_matrices<kDepthsOfB, true>(y, b, b_step, n + j * 8, k, is_last);
      WEFT_UNROLL
      for (int i = 0; i < kTilesM; ++i) {
        float* const tile = c + (i * kTilesN + j) * 4;
        multiply_tile<kIsBf16>(tile, x[i], y[0], y[1]);
        if (!is_last) multiply_tile<kIsBf16>(tile + 4, x[i], y[2], y[3]);
      }
    }
  }
}

}  // namespace weft::loop
