// Activations from fp32 to what a scheme multiplies. Rounding is to nearest even through the magic number 1.5 * 2^23;
// the integers are the same on every instruction set.
#pragma once

#include "ops/gemm/kernels/integer.h"
#include "ops/kernels/largest.h"

namespace weft::gemm::WEFT_ISA_NAME {
namespace {

inline constexpr int kBlockVecs = kBlock / kLanes;

// Rows and blocks whose largest magnitude is below this count as zero: its reciprocal would overflow.
inline constexpr float kSmallest = 1e-30f;

inline int bits_of(float x) { return __builtin_bit_cast(int, x); }

using ops::WEFT_ISA_NAME::largest;
inline bool is_finite(float magnitude) { return bits_of(magnitude) < 0x7f800000; }

// 32 values to integers; returns their sum.
inline int quantise_block(const float* x, float inverse, I32 (&q)[kBlockVecs]) {
  constexpr float kMagic = 12582912.f;
  I32 sum{};
  unroll<kBlockVecs>([&](auto v) {
    const F32 shifted = fma(load(x + v.value * kLanes), broadcast(inverse), broadcast(kMagic));
    q[v.value] = reinterpret_cast<I32>(shifted) - bits_of(kMagic);
    sum += q[v.value];
  });
  return static_cast<int>(sum_lanes(reinterpret_cast<U32>(sum)));
}

// One scale a row. A row that is not finite gets the scale NaN. put(q, to) stores a block.
template <class Put>
inline void prepare_int16(const float* from, const Rows& x, long long row, const Put& put) {
  const float most = largest(from, x.blocks * kBlock);
  const bool usable = is_finite(most) && most >= kSmallest;
  const float inverse = usable ? static_cast<float>(kActivationMax) / most : 0.f;
  x.scales[row] = usable ? most / static_cast<float>(kActivationMax) : is_finite(most) ? 0.f : __builtin_nanf("");
  long long place = place_of(x, row, 0);
  for (long long b = 0; b < x.blocks; ++b, place += x.group) {
    I32 q[kBlockVecs] = {};
    const int sum = usable ? quantise_block(from + b * kBlock, inverse, q) : 0;
    x.offsets[place] = -kLeastOffset * sum;
    x.real_sums[place] = static_cast<float>(sum);
    put(q, x.data + place * kBlock * 2);
  }
}

template <int... I>
inline I32 swap_middle(I32 v, Lanes<I...>) {
  constexpr int kFrom[] = {0, 2, 1, 3};
  return __builtin_shufflevector(v, v, (I / 4 * 4 + kFrom[I % 4])...);
}

// Of each four numbers the middle two change places (Pair16).
inline void put_pairs(const I32 (&q)[kBlockVecs], char* to) {
  unroll<kBlockVecs>([&](auto v) {
    store_u16(to + v.value * kLanes * 2, low_u16(reinterpret_cast<U32>(swap_middle(q[v.value], AllLanes()))));
  });
}

// Of each four numbers their high bytes, then the low ones.
inline void put_split_int8(const I32 (&q)[kBlockVecs], char* to) {
  char high[kBlock], low[kBlock];
  unroll<kBlockVecs>([&](auto v) {
    const SplitI16 split = split_i16(reinterpret_cast<U32>(q[v.value] + 128));
    store_u8(high + v.value * kLanes, split.high);
    store_u8(low + v.value * kLanes, split.low);
  });
  for (int i = 0; i < kBlock; i += 4) {
    __builtin_memcpy(to + 2 * i, high + i, 4);
    __builtin_memcpy(to + 2 * i + 4, low + i, 4);
  }
}

// quad8: one scale a block. A block that is not finite gets the scale NaN.
inline void prepare_int8(const float* from, const Rows& x, long long row) {
  long long place = place_of(x, row, 0);
  for (long long b = 0; b < x.blocks; ++b, place += x.group) {
    const float most = largest(from + b * kBlock, kBlock);
    const bool usable = is_finite(most) && most >= kSmallest;
    const float scale = usable ? most / 127.f : is_finite(most) ? 0.f : __builtin_nanf("");
    I32 q[kBlockVecs] = {};
    const int sum = usable ? quantise_block(from + b * kBlock, 127.f / most, q) : 0;
    char* to = x.data + place * kBlock;
    unroll<kBlockVecs>([&](auto v) { store_u8(to + v.value * kLanes, low_u8(reinterpret_cast<U32>(q[v.value]))); });
    x.scales[place] = scale;
    x.offsets[place] = -kLeastOffset * sum;
    x.real_sums[place] = scale * static_cast<float>(sum);
  }
}

// bf16_dot: an odd row ends with a zero.
inline void prepare_bf16(const float* from, long long cols, const Rows& x, long long row) {
  char* to = x.data + row * x.row_bytes;
  narrow<Bf16>(from, cols, to);
  if (cols % 2 != 0) __builtin_memset(to + 2 * cols, 0, 2);
}

inline void prepare(Scheme scheme, const float* from, long long cols, const Rows& x, long long row) {
  switch (scheme) {
    case Scheme::fp32: __builtin_memcpy(x.data + row * x.row_bytes, from, static_cast<unsigned long>(cols) * 4); break;
    case Scheme::bf16_dot: prepare_bf16(from, cols, x, row); break;
    case Scheme::pair16: prepare_int16(from, x, row, put_pairs); break;
    case Scheme::split_int8: prepare_int16(from, x, row, put_split_int8); break;
    case Scheme::quad8: prepare_int8(from, x, row); break;
  }
}

}  // namespace
}  // namespace weft::gemm::WEFT_ISA_NAME
