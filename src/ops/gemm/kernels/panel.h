// What the tiles are made of: a panel is kVecs vectors of kLanes outputs, and a tile multiplies it by some rows.
#pragma once

#include "ops/gemm/kernels/abi.h"
#include "tile/cpu/bf16_dot.h"
#include "tile/cpu/convert.h"
#include "tile/cpu/int_dot.h"

// Of lambdas in a tile: called as functions they would find the sums in memory.
#define WEFT_INLINED __attribute__((always_inline))

namespace weft::gemm::WEFT_ISA_NAME {
namespace {

using namespace weft::tile::WEFT_ISA_NAME;

inline constexpr int kVecs = 2;
inline constexpr int kPanel = kLanes * kVecs;
inline constexpr int kVecBytes = kLanes * 4;
// Rows of a tile: its sums, the weights of a step and an activation fill the registers. Two thirds of them still hide
// the latency of a product. With 32 registers small tiles of integers hold their sums in fp32 in them, too: more loads
// for each product, and no stores after a block of them.
inline constexpr int kTileRows = kRegisters == 32 ? 12 : 6, kSmallTileRows = 6;
inline constexpr int kMostHeldRows = kRegisters == 32 ? 6 : 0;
inline constexpr int kLowTileRows = kTileRows * 2 / 3, kLowSmallTileRows = kSmallTileRows * 2 / 3;
template <int kRows>
inline constexpr bool kHoldsSums = kRows <= kMostHeldRows;

template <int n>
struct Index {
  static constexpr int value = n;
};
// Calls body(Index<0>), ..., body(Index<n - 1>).
template <int n, class Body>
inline WEFT_INLINED void unroll(const Body& body) {
  if constexpr (n > 0) {
    unroll<n - 1>(body);
    body(Index<n - 1>{});
  }
}

// A value that the compiler must have here: without it gcc gathers a chain of sums at its end and spills the products.
template <class T>
WEFT_INLINE T settled(T value) {
#if WEFT_LANES > 4
  asm("" : "+v"(value));
#endif
  return value;
}

// The word at p in every lane.
WEFT_INLINE U32 broadcast_word(const void* p) {
  unsigned word;
  __builtin_memcpy(&word, p, sizeof word);
  return broadcast(word);
}

}  // namespace
}  // namespace weft::gemm::WEFT_ISA_NAME
