// A product of 16-bit matrices: tiles of 64 x 64, 4 warps of 16 rows each, K in steps of 32 through two stages of
// cp.async. Rows beyond m and n, and elements beyond k, are filled with zeros.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/fragment.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/cp_async.h"

namespace weft {

inline constexpr int kGemmTile = 64, kGemmStep = 32, kGemmThreads = 128;
inline constexpr int kGemmShared = 2 * 2 * kGemmTile * kGemmStep * 2;  // stages, operands

template <class T>
struct Gemm {
  using Tile = tile::SharedTile<kGemmStep>;

  WEFT_INLINE static void copy(const Tile& to, const T* from, int first_row, int rows, int first_k, int k) {
    for (int i = ptx::thread_index(); i < kGemmTile * Tile::kChunks; i += kGemmThreads) {
      const int row = i / Tile::kChunks, chunk = i % Tile::kChunks;
      const int left = (k - first_k - 8 * chunk) * 2;
      const bool is_there = first_row + row < rows && left > 0;
      const T* source = is_there ? from + static_cast<i64>(first_row + row) * k + first_k + 8 * chunk : from;
      ptx::cp_async_16(to.chunk(row, chunk), source, is_there ? (left < 16 ? left : 16) : 0);
    }
  }

  WEFT_INLINE static void run(const GemmArgs& args) {
    const int tiles_n = (args.n + kGemmTile - 1) / kGemmTile;
    const int m0 = ptx::cta_index() / tiles_n * kGemmTile, n0 = ptx::cta_index() % tiles_n * kGemmTile;
    u8* shared = ptx::shared_memory();
    const auto stage = [&](int step, int operand) {
      return Tile{shared + (step % 2 * 2 + operand) * Tile::bytes(kGemmTile)};
    };
    const auto fetch = [&](int step) {
      copy(stage(step, 0), static_cast<const T*>(args.a), m0, args.m, step * kGemmStep, args.k);
      copy(stage(step, 1), static_cast<const T*>(args.b), n0, args.n, step * kGemmStep, args.k);
      ptx::cp_async_commit();
    };
    float d[kGemmTile / 8][4] = {};
    const int steps = (args.k + kGemmStep - 1) / kGemmStep;
    fetch(0);
    for (int step = 0; step < steps; ++step) {
      if (step + 1 < steps) {
        fetch(step + 1);
        ptx::cp_async_wait<1>();
      } else {
        ptx::cp_async_wait<0>();
      }
      ptx::cta_sync();
      WEFT_UNROLL
      for (int k = 0; k < kGemmStep; k += 16) {
        u32 a[4];
        tile::load_a(a, stage(step, 0), 16 * ptx::warp(), k);
        WEFT_UNROLL
        for (int n = 0; n < kGemmTile; n += 16) {
          u32 b[4];
          tile::load_b(b, stage(step, 1), n, k);
          tile::multiply<T>(d[n / 8], a, b[0], b[1]);
          tile::multiply<T>(d[n / 8 + 1], a, b[2], b[3]);
        }
      }
      ptx::cta_sync();  // the next fetch writes where this step was read
    }
    WEFT_UNROLL
    for (int i = 0; i < kGemmTile / 8; ++i) WEFT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int row = m0 + 16 * ptx::warp() + tile::fragment_row(e / 2),
                column = n0 + 8 * i + tile::fragment_column() + e % 2;
      if (row < args.m && column < args.n) args.c[static_cast<i64>(row) * args.n + column] = d[i][e];
    }
  }
};

}  // namespace weft

WEFT_KERNEL(128, 1) void weft_gemm_fp16(WEFT_PARAM weft::GemmArgs args) { weft::Gemm<weft::fp16>::run(args); }
#if WEFT_SM >= 80
WEFT_KERNEL(128, 1) void weft_gemm_bf16(WEFT_PARAM weft::GemmArgs args) { weft::Gemm<weft::bf16>::run(args); }
#endif
