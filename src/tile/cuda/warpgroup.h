// What a warpgroup multiplies: tiles in shared memory, and their products in fp32 behind the threads' backs
// (ptx/wgmma.h has the layouts and says when what is to be fenced and waited for).
//
//   const PanelTile<kQueries> q{shared};  const PanelTile<kKeys> keys{shared + kQueries.bytes()};
//   ptx::wgmma_fence(scores);
//   for (int k = 0; k < 128; k += 16)
//     multiply_async<bf16>(scores, q.rows(64 * warpgroup, k), keys.rows(0, k), k > 0);
//   ptx::wgmma_commit();
//   ptx::wgmma_wait<0>(scores);
#pragma once

#include "tile/cuda/convert.h"
#include "tile/cuda/ptx/wgmma.h"

namespace weft::tile {

#if WEFT_SM >= 90
template <abi::MatrixTile kTile>
struct PanelTile {
  static constexpr int kRowBytes = kTile.span();  // within a panel
  u8* data;                                       // kTile.alignment()-aligned

  WEFT_INLINE static constexpr u32 bytes() { return kTile.bytes(); }
  WEFT_INLINE u8* chunk(int row, int c) const { return data + kTile.chunk(row, c); }
  // Rows of the tile are rows of A, or columns of B: queries, keys. From row `row` on, elements k to k + 15.
  WEFT_INLINE auto rows(int row, int k) const { return ptx::matrix_descriptor<kTile, abi::Major::k>(data, row, k); }
  // Rows of the tile are steps of k: values. Rows k to k + 15, from column `column` on.
  WEFT_INLINE auto columns(int k, int column) const {
    return ptx::matrix_descriptor<kTile, abi::Major::mn>(data, k, column);
  }
};

// d = a b, or d += a b where `accumulates`, for elements of type T, fp16 or bf16; `a` is four registers, or where they
// lie as `b` is.
template <class T>
struct WarpgroupProduct;
template <>
struct WarpgroupProduct<bf16> {
  WEFT_INLINE static void run(auto& d, const auto& a, const auto& b, bool accumulates) {
    ptx::wgmma_bf16(d, a, b, accumulates);
  }
};
template <>
struct WarpgroupProduct<fp16> {
  WEFT_INLINE static void run(auto& d, const auto& a, const auto& b, bool accumulates) {
    ptx::wgmma_fp16(d, a, b, accumulates);
  }
};
template <class T, int n, class A, class B>
WEFT_INLINE void multiply_async(float (&d)[n], const A& a, const B& b, bool accumulates) {
  WarpgroupProduct<T>::run(d, a, b, accumulates);
}

// A product's registers as A of the next one: columns become steps of k.
template <class T, int n>
WEFT_INLINE void pack_a(u32 (&a)[n / 8][4], const float (&d)[n]) {
  WEFT_UNROLL
  for (int i = 0; i < n / 2; ++i) a[i / 4][i % 4] = pack<T>(d[2 * i], d[2 * i + 1]);
}

// Where register r of a thread's part of a product lies.
WEFT_INLINE int warpgroup_row(int thread, int r) { return thread % 128 / 32 * 16 + thread % 32 / 4 + r / 2 % 2 * 8; }
WEFT_INLINE int warpgroup_column(int thread, int r) { return r / 4 * 8 + thread % 4 * 2 + r % 2; }
WEFT_INLINE int warpgroup_row(int r) { return warpgroup_row(ptx::thread_index(), r); }
WEFT_INLINE int warpgroup_column(int r) { return warpgroup_column(ptx::thread_index(), r); }
#endif

}  // namespace weft::tile
