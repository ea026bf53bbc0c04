// One row of keys or values as a cache holds it, written by a warp.
#pragma once

#include "ops/cuda/kernels/args.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/reduce.h"

namespace weft::ops {

// How scales of a cache come about.
enum class Scaled { none, given, token };

// The largest number of a type, by which a magnitude is divided.
template <class T>
inline constexpr float kLargest = 127.f;

// The scale for numbers up to a magnitude: 0 below 1e-30, NaN where it is not finite; no finite magnitude comes back as
// Inf.
WEFT_INLINE float scale_for(float magnitude, float largest) {
  if (!(magnitude <= 3.4028235e38f)) return ptx::from_bits(0x7fc00000u);
  if (magnitude < 1e-30f) return 0.f;
  const float scale = magnitude / largest;
  return scale * largest <= 3.4028235e38f ? scale : ptx::from_bits(ptx::to_bits(scale) - 1);
}

// factor * x to the nearest integer of at most 127; 0 for NaN.
WEFT_INLINE signed char to_int8(float x) {
  x = x != x ? 0.f : x < -127.f ? -127.f : x > 127.f ? 127.f : x;
  constexpr float kMagic = 12582912.f;
  return static_cast<signed char>(static_cast<int>(ptx::to_bits(x + kMagic)) - static_cast<int>(ptx::to_bits(kMagic)));
}

WEFT_INLINE void store_scaled(float* to, float x) { *to = x; }
WEFT_INLINE void store_scaled(fp16* to, float x) { tile::store(to, x); }
WEFT_INLINE void store_scaled(bf16* to, float x) { tile::store(to, x); }
WEFT_INLINE void store_scaled(signed char* to, float x) { *to = to_int8(x); }

// x[0 .. dim), of which every lane reads what it likes, into a head's row of its place. All lanes call.
template <class T, Scaled kScaled>
WEFT_INLINE void write_row(const CardCache& cache, CachePlace place, int head, const float* x, int dim) {
  T* to = static_cast<T*>(cache.data) + place.page * cache.page_stride + place.slot * cache.slot_stride +
          head * cache.head_stride;
  float factor = 1.f;
  if constexpr (kScaled != Scaled::none) {
    float* at = cache.scale + place.page * cache.scale_page_stride + place.slot * cache.scale_slot_stride +
                head * cache.scale_head_stride;
    float scale;
    if constexpr (kScaled == Scaled::token) {
      float largest = 0.f, finite = 1.f;
      for (int i = ptx::lane(); i < dim; i += 32) {
        const float size = x[i] < 0.f ? -x[i] : x[i];
        largest = ptx::larger(largest, size);
        finite = size <= 3.4028235e38f ? finite : 0.f;
      }
      const bool all_finite = tile::lane_max(-finite) < 0.f;
      largest = tile::lane_max(largest);
      scale = scale_for(all_finite ? largest : ptx::from_bits(0x7f800000u), kLargest<T>);
      if (ptx::lane() == 0) *at = scale;
    } else {
      scale = *at;
    }
    factor = scale > 0.f ? 1.f / scale : 0.f;
  }
  for (int i = ptx::lane(); i < dim; i += 32) store_scaled(to + i, x[i] * factor);
}

}  // namespace weft::ops
