// Products by warps on sums that the threads of a CTA hold together: what generated text calls where a nest is
// annotated `mma` (loop/threads/fragments.h says which thread holds what). Of 16-bit floats; of fp32 as sums of two
// numbers of tf32, whose products but the least are added up: each product errs by 5 * 2^-22 of itself.
//
//   float c[16];                                                    // of 32 x 32, by 2 x 2 warps
//   multiply<true, 1, 2, 2, 2, 64, true, false>(c, a, 72, b, 40);
#pragma once

#include "tile/cuda/ptx/cp_async.h"
#include "tile/cuda/ptx/ldmatrix.h"
#include "tile/cuda/ptx/math.h"
#include "tile/cuda/ptx/mma.h"

namespace weft::loop {

// Four matrices for an operand of mma, of 8 rows and 16 bytes of depths each: rows o to o + 15 and depths from k on of
// a tile in shared memory, whose depths lie side by side, or else its rows. `step`: elements from one row, or depth, to
// the next.
// kDepthFirst: the second matrix is the first one's in depth, as B's registers are; else its neighbour in rows, as A's.
template <bool kDepthsSideBySide, bool kDepthFirst, class T>
WEFT_INLINE void load_matrices(u32 (&x)[4], const T* tile, int step, int o, int k, bool is_half) {
  constexpr int kDepth = 16 / static_cast<int>(sizeof(T));
  const auto below = [&](int matrix) { return is_half ? 0 : 8 * (kDepthFirst ? matrix / 2 : matrix % 2); };
  const auto deeper = [](int matrix) { return kDepth * (kDepthFirst ? matrix % 2 : matrix / 2); };
  const int lane = ptx::lane(), own = lane / 8;
  if constexpr (kDepthsSideBySide) {
    ptx::ldmatrix_x4(x, tile + (o + below(own) + lane % 8) * step + k + deeper(own));
  } else if constexpr (sizeof(T) == 2) {
    ptx::ldmatrix_x4_trans(x, tile + (k + deeper(own) + lane % 8) * step + o + below(own));
  } else {
    WEFT_UNROLL
    for (int m = 0; m < 4; ++m) x[m] = ptx::to_bits(tile[(k + deeper(m) + lane % 4) * step + o + below(m) + lane / 4]);
  }
}

// 16 depths of four matrices.
template <class T>
struct Operand {
  template <bool kDepthsSideBySide, bool kDepthFirst>
  WEFT_INLINE void load(const T* tile, int step, int o, int k, bool is_half) {
    load_matrices<kDepthsSideBySide, kDepthFirst>(x, tile, step, o, k, is_half);
  }
  u32 x[4];
};
template <>
struct Operand<float> {
  template <bool kDepthsSideBySide, bool kDepthFirst>
  WEFT_INLINE void load(const float* tile, int step, int o, int k, bool is_half) {
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      u32 x[4];
      load_matrices<kDepthsSideBySide, kDepthFirst>(x, tile, step, o, k + 8 * half, is_half);
      WEFT_UNROLL
      for (int i = 0; i < 4; ++i) {
        high[half][i] = (x[i] + 0x1000u) & ~0x1fffu;  // to nearest; of a NaN anything, and then `low` is one
        low[half][i] = ptx::to_bits(ptx::from_bits(x[i]) - ptx::from_bits(high[half][i]));
      }
    }
  }
  u32 high[2][4], low[2][4];
};

// By the first or second tile of b's two.
template <bool kIsBf16, class T>
WEFT_INLINE void multiply_tile(float (&d)[4], const Operand<T>& a, const Operand<T>& b, int tile) {
  if constexpr (kIsBf16)
    ptx::mma_m16n8k16_bf16(d, a.x, b.x[2 * tile], b.x[2 * tile + 1]);
  else
    ptx::mma_m16n8k16_fp16(d, a.x, b.x[2 * tile], b.x[2 * tile + 1]);
}
template <bool kIsBf16>
WEFT_INLINE void multiply_tile(float (&d)[4], const Operand<float>& a, const Operand<float>& b, int tile) {
  WEFT_UNROLL
  for (int half = 0; half < 2; ++half) {
    ptx::mma_m16n8k8_tf32(d, a.low[half], b.high[half][2 * tile], b.high[half][2 * tile + 1]);
    ptx::mma_m16n8k8_tf32(d, a.high[half], b.low[half][2 * tile], b.low[half][2 * tile + 1]);
    ptx::mma_m16n8k8_tf32(d, a.high[half], b.high[half][2 * tile], b.high[half][2 * tile + 1]);
  }
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
    Operand<T> x[kTilesM];
    WEFT_UNROLL
    for (int i = 0; i < kTilesM; ++i) x[i].template load<kDepthsOfA, false>(a, a_step, m + i * 16, k, false);
    WEFT_UNROLL
    for (int j = 0; j < kTilesN; j += 2) {
      const bool is_last = j + 1 == kTilesN;
      Operand<T> y;
      y.template load<kDepthsOfB, true>(b, b_step, n + j * 8, k, is_last);
      WEFT_UNROLL
      for (int i = 0; i < kTilesM; ++i) WEFT_UNROLL
      for (int tile = 0; tile < (is_last ? 1 : 2); ++tile) {
        float* const sums = c + (i * kTilesN + j + tile) * 4;
        float d[4] = {sums[0], sums[1], sums[2], sums[3]};
        multiply_tile<kIsBf16>(d, x[i], y, tile);
        WEFT_UNROLL
        for (int e = 0; e < 4; ++e) sums[e] = d[e];
      }
    }
  }
}

}  // namespace weft::loop
