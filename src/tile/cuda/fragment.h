// What a warp multiplies: fragments of tiles in shared memory, and their products in fp32 (ptx/mma.h has the layouts).
//
//   u32 a[4], b[4];
//   load_a(a, q, 16 * warp, k);  load_b(b, keys, n, k);
//   multiply<bf16>(d[0], a, b[0], b[1]);  multiply<bf16>(d[1], a, b[2], b[3]);   // columns n to n + 7, n + 8 to n + 15
#pragma once

#include "tile/cuda/ptx/ldmatrix.h"
#include "tile/cuda/ptx/mma.h"
#include "tile/cuda/ptx/shuffle.h"
#include "tile/cuda/swizzle.h"

namespace weft::tile {

// Rows row to row + 15, elements k to k + 15 of a tile of A; k is a multiple of 8.
template <int kColumns>
WEFT_INLINE void load_a(u32 (&a)[4], const SharedTile<kColumns>& from, int row, int k) {
  const int lane = ptx::lane();
  ptx::ldmatrix_x4(a, from.chunk(row + lane % 16, k / 8 + lane / 16));
}
// B from a tile whose rows are its columns (keys): columns n to n + 15, elements k to k + 15.
template <int kColumns>
WEFT_INLINE void load_b(u32 (&b)[4], const SharedTile<kColumns>& from, int n, int k) {
  const int lane = ptx::lane();
  ptx::ldmatrix_x4(b, from.chunk(n + lane % 8 + lane / 16 * 8, k / 8 + lane / 8 % 2));
}
// B from a tile whose rows are its rows (values): elements k to k + 15 are rows, columns n to n + 15.
template <int kColumns>
WEFT_INLINE void load_b_rows(u32 (&b)[4], const SharedTile<kColumns>& from, int k, int n) {
  const int lane = ptx::lane();
  ptx::ldmatrix_x4_trans(b, from.chunk(k + lane % 16, n / 8 + lane / 16));
}

// Lane i of n neighbours, a power of 2, has in the end what the j-th of them had as x[i] as its x[j]; all lanes of the
// warp call.
template <int n>
WEFT_INLINE void transpose_lanes(u32 (&x)[n], int lane) {
  WEFT_UNROLL
  for (int step = 1; step < n; step *= 2) {
    const bool is_upper = (lane & step) != 0;
    WEFT_UNROLL
    for (int i = 0; i < n; ++i) {
      if ((i & step) != 0) continue;
      u32 &low = x[i], &high = x[i + step];
      const u32 given = ptx::shuffle_xor(is_upper ? low : high, step);
      low = is_upper ? given : low;
      high = is_upper ? high : given;
    }
  }
}

// The same where many fragments of a tile are read: a lane's rows lie a known number of bytes from few places, as
// chunks are permuted alike in rows that are 8 apart.
//
//   const auto rows = FragmentRows<128>::of_b(keys, lane);
//   load(b, rows, n, k);                             // n is a multiple of 8, k of 16
template <int kColumns>
struct FragmentRows {
  // Bits of a byte's place in its row that the permutation changes; the others are a sum.
  static constexpr int kMixed = SharedTile<kColumns>::kPower * 16 - 1,
                       kPlaces = (kMixed + 1) / 32 > 0 ? (kMixed + 1) / 32 : 1;
  ptx::SharedPlace places[kPlaces];

  WEFT_INLINE static FragmentRows of_a(const SharedTile<kColumns>& tile, int lane) {
    return at(tile, lane % 16, lane / 16);
  }
  WEFT_INLINE static FragmentRows of_b(const SharedTile<kColumns>& tile, int lane) {
    return at(tile, lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }
  WEFT_INLINE static FragmentRows of_b_rows(const SharedTile<kColumns>& tile, int lane) { return of_a(tile, lane); }
  WEFT_INLINE ptx::SharedPlace chunk(int row, int k) const {
    return places[(2 * k & kMixed) / 32] + (row * kColumns * 2 + (2 * k & ~kMixed));
  }

 private:
  WEFT_INLINE static FragmentRows at(const SharedTile<kColumns>& tile, int row, int half) {
    FragmentRows rows;
    WEFT_UNROLL
    for (int i = 0; i < kPlaces; ++i) rows.places[i] = ptx::shared_place(tile.chunk(row, 2 * i + half));
    return rows;
  }
};
template <int kColumns>
WEFT_INLINE void load(u32 (&x)[4], const FragmentRows<kColumns>& rows, int row, int k) {
  ptx::ldmatrix_x4(x, rows.chunk(row, k));
}
template <int kColumns>
WEFT_INLINE void load_transposed(u32 (&x)[4], const FragmentRows<kColumns>& rows, int row, int k) {
  ptx::ldmatrix_x4_trans(x, rows.chunk(row, k));
}

// d += a b for elements of type T, fp16 or bf16.
template <class T>
WEFT_INLINE void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) = delete;
template <>
WEFT_INLINE void multiply<fp16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  ptx::mma_m16n8k16_fp16(d, a, b0, b1);
}
#if WEFT_SM >= 80
template <>
WEFT_INLINE void multiply<bf16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  ptx::mma_m16n8k16_bf16(d, a, b0, b1);
}
#endif

// Where this lane's part of a product lies: d[0] at (row(0), column(0)), d[1] beside it, d[2] and d[3] at row(1).
WEFT_INLINE int fragment_row(int half) { return ptx::lane() / 4 + 8 * half; }
WEFT_INLINE int fragment_column() { return ptx::lane() % 4 * 2; }

}  // namespace weft::tile
