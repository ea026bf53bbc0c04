// Products of warpgroups: four warps, from a multiple of four on, multiply as one, behind their own backs (sm_90a).
// D = A B + D: A 64 x 16 and B 16 x n in 16-bit floats, D 64 x n in fp32; n is 8 or a multiple of 16 up to 256. B lies
// in shared memory, A there or in registers. With w = warp % 4, g = lane / 4 and t = lane % 4 a thread has
//   d[4 i + 2 h + e]: row 16 w + g + 8 h, column 8 i + 2 t + e
//   a[0], a[1]: columns 2t, 2t + 1 of rows 16 w + g and 16 w + g + 8;   a[2], a[3]: columns 2t + 8, 2t + 9
//
//   fence_async_shared();                        // whoever stored what is multiplied; copies need none
//   cta_sync();
//   wgmma_fence(d);                              // all 128 threads, as what follows
//   for (int k = 0; k < 64; k += 16)
//     wgmma_bf16(d, matrix_descriptor<kQueries, Major::k>(queries, 64 * group, k),
//                matrix_descriptor<kKeys, Major::k>(keys, 0, k), k > 0);
//   wgmma_commit();
//   wgmma_wait<0>(d);
//
// From a product until its wait its registers, A's too, are not to be read or written, and shared memory that it reads
// is not to be written. Where one warp has waited, the warpgroup has read that memory. Products that follow each other
// may add to the same accumulators without a wait between them.
#pragma once

#include "tile/abi/matrix_tile.h"
#include "tile/cuda/ptx/thread.h"
#include "tile/cuda/ptx/wgmma_operands.h"

namespace weft::ptx {

#if WEFT_SM >= 90
using abi::Major;
using abi::MatrixTile;
using abi::Swizzle;

// Where an operand lies, and how.
template <Major major>
struct MatrixDescriptor {
  u64 bits;
};

// Of what begins at (row, column) of a tile in shared memory: 16 steps of k (abi::MatrixTile says where one may begin).
template <MatrixTile tile, Major major>
WEFT_INLINE MatrixDescriptor<major> matrix_descriptor(const void* data, int row, int column) {
  static_assert(tile.is_valid());
  // Addresses of shared memory have 18 bits. What is added to the tile's own is known, but for where the tile lies.
  constexpr u32 kLow = static_cast<u32>(tile.leading(major) / 16) << 16;
  constexpr u32 kHigh =
      static_cast<u32>(tile.stride(major) / 16) | static_cast<u32>((4 - static_cast<int>(tile.swizzle)) % 4) << 30;
  const u32 start = (shared_address(data) >> 4) + static_cast<u32>(tile.offset(row, column)) / 16;
  return {static_cast<u64>(kHigh) << 32 | (kLow + start)};
}

// The compiler moves no access of these registers across the call. One statement for all: each takes time to compile.
#define WEFT_HOLD(n, type, x0, x1, x2, x3, x4, x5, x6) \
  if constexpr (registers == n / 2) asm volatile("" : WEFT_WGMMA_REGISTERS_##n::"memory");
template <int registers>
WEFT_INLINE void hold_registers(float (&d)[registers]) {
  static_assert(abi::is_product_width(2 * registers));
  WEFT_WGMMA_SIZES(WEFT_HOLD, "")
}
#undef WEFT_HOLD
WEFT_INLINE void hold_registers(u32 (&r)[4]) {
  asm volatile("" : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])::"memory");
}
template <int n, class T, int m>
WEFT_INLINE void hold_registers(T (&r)[m][n]) {
  WEFT_UNROLL
  for (int i = 0; i < m; ++i) hold_registers(r[i]);
}

// What follows begins once `size`, which is never below 0, is there, and with it all that it was made of: the compiler
// moves arithmetic that a wait does not need behind the wait, and so out of the time that products take.
WEFT_INLINE void finish_before_waiting(float size) {
  asm volatile("{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p nanosleep.u32 0;\n}" ::"f"(size) : "memory");
}

// Before the first product, and before one that takes registers which other instructions have read or written since the
// last fence. These are named.
template <class... Registers>
WEFT_INLINE void wgmma_fence(Registers&... used) {
  (hold_registers(used), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// The products since the last commit are a group.
WEFT_INLINE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until all groups but the last `pending` are done. Of these the accumulators are named, and A's registers.
template <int pending, class... Registers>
WEFT_INLINE void wgmma_wait(Registers&... landed) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
  (hold_registers(landed), ...);
}

// A in shared memory: operands a, b, accumulates, and whether A and B are transposed.
#define WEFT_WGMMA_SHARED(n, type, x0, x1, x2, x3, x4, x5, x6)                                                         \
  if constexpr (registers == n / 2)                                                                                    \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #x2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type \
                 "." type " {" WEFT_WGMMA_NUMBERS_##n "}, %" #x0 ", %" #x1 ", p, 1, 1, %" #x3 ", %" #x4 ";\n}"         \
                 : WEFT_WGMMA_REGISTERS_##n                                                                            \
                 : "l"(a.bits), "l"(b.bits), "r"(static_cast<int>(accumulates)), "n"(a_major == Major::mn),            \
                   "n"(b_major == Major::mn)                                                                           \
                 : "memory");
// A in registers: operands a[0] to a[3], b, accumulates, and whether B is transposed.
#define WEFT_WGMMA_REGISTERS(n, type, x0, x1, x2, x3, x4, x5, x6)                                                      \
  if constexpr (registers == n / 2)                                                                                    \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #x5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type \
                 "." type " {" WEFT_WGMMA_NUMBERS_##n "}, {%" #x0 ", %" #x1 ", %" #x2 ", %" #x3 "}, %" #x4             \
                                                      ", p, 1, 1, %" #x6 ";\n}"                                        \
                 : WEFT_WGMMA_REGISTERS_##n                                                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(static_cast<int>(accumulates)),        \
                   "n"(b_major == Major::mn)                                                                           \
                 : "memory");

// n is 2 * registers. Where `accumulates` is false, D = A B: what d held does not matter.
template <int registers, Major a_major, Major b_major>
WEFT_INLINE void wgmma_bf16(float (&d)[registers], MatrixDescriptor<a_major> a, MatrixDescriptor<b_major> b,
                            bool accumulates) {
  static_assert(abi::is_product_width(2 * registers));
  WEFT_WGMMA_SIZES(WEFT_WGMMA_SHARED, "bf16")
}
template <int registers, Major a_major, Major b_major>
WEFT_INLINE void wgmma_fp16(float (&d)[registers], MatrixDescriptor<a_major> a, MatrixDescriptor<b_major> b,
                            bool accumulates) {
  static_assert(abi::is_product_width(2 * registers));
  WEFT_WGMMA_SIZES(WEFT_WGMMA_SHARED, "f16")
}
template <int registers, Major b_major>
WEFT_INLINE void wgmma_bf16(float (&d)[registers], const u32 (&a)[4], MatrixDescriptor<b_major> b, bool accumulates) {
  static_assert(abi::is_product_width(2 * registers));
  WEFT_WGMMA_SIZES(WEFT_WGMMA_REGISTERS, "bf16")
}
template <int registers, Major b_major>
WEFT_INLINE void wgmma_fp16(float (&d)[registers], const u32 (&a)[4], MatrixDescriptor<b_major> b, bool accumulates) {
  static_assert(abi::is_product_width(2 * registers));
  WEFT_WGMMA_SIZES(WEFT_WGMMA_REGISTERS, "f16")
}
#undef WEFT_WGMMA_SHARED
#undef WEFT_WGMMA_REGISTERS
#endif

}  // namespace weft::ptx
