// One row of keys or values as a cache holds it, written by a warp.
#pragma once

#include "ops/cuda/kernels/args.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/reduce.h"
#include "tile/narrow.h"

namespace weft::ops {

// How scales of a cache come about: a token's and a group's by the largest magnitude.
enum class Scaled { none, given, token, token_group };

// The largest number of a type, by which a magnitude is divided.
template <class T>
inline constexpr float kLargest = 127.f;
template <>
inline constexpr float kLargest<int4x2> = 7.f;
template <>
inline constexpr float kLargest<fp8_e4m3> = 448.f;
template <>
inline constexpr float kLargest<fp8_e5m2> = 57344.f;
// Numbers of an element.
template <class T>
inline constexpr int kNumbers = 1;
template <>
inline constexpr int kNumbers<int4x2> = 2;

// The scale for numbers up to a magnitude: 0 below 1e-30, NaN where it is not finite; no finite magnitude comes back as
// Inf.
WEFT_INLINE float scale_for(float magnitude, float largest) {
  if (!(magnitude <= 3.4028235e38f)) return ptx::from_bits(0x7fc00000u);
  if (magnitude < 1e-30f) return 0.f;
  const float scale = magnitude / largest;
  return scale * largest <= 3.4028235e38f ? scale : ptx::from_bits(ptx::to_bits(scale) - 1);
}
// What numbers are multiplied by.
WEFT_INLINE float factor_of(float scale) { return scale > 0.f ? 1.f / scale : 0.f; }

WEFT_INLINE void store_numbers(float* to, const float (&x)[1]) { *to = x[0]; }
WEFT_INLINE void store_numbers(fp16* to, const float (&x)[1]) { tile::store(to, x[0]); }
WEFT_INLINE void store_numbers(bf16* to, const float (&x)[1]) { tile::store(to, x[0]); }
WEFT_INLINE void store_numbers(fp8_e4m3* to, const float (&x)[1]) { to->bits = tile::nearest_e4m3(x[0]); }
WEFT_INLINE void store_numbers(fp8_e5m2* to, const float (&x)[1]) { to->bits = tile::nearest_e5m2(x[0]); }
WEFT_INLINE void store_numbers(signed char* to, const float (&x)[1]) {
  *to = static_cast<signed char>(tile::nearest_integer(x[0], 127.f));
}
WEFT_INLINE void store_numbers(int4x2* to, const float (&x)[2]) {
  to->bits = static_cast<u8>((tile::nearest_integer(x[0], 7.f) & 15) | tile::nearest_integer(x[1], 7.f) << 4);
}

template <class T>
WEFT_INLINE void load_numbers(const T& from, float (&x)[1]) {
  x[0] = tile::to_float(from);
}
WEFT_INLINE void load_numbers(const int4x2& from, float (&x)[2]) {
  float all[8];
  tile::unpack<int4x2>(from.bits, all);
  x[0] = all[0];
  x[1] = all[1];
}

WEFT_INLINE int clamped(int x, int behind) { return x < 0 ? 0 : x < behind ? x : behind - 1; }
// The i-th of a call's places.
template <class Args>
WEFT_INLINE CachePlace place_of(const Args& args, i64 i) {
  const CachePlace given = args.places[i];
  if (args.clamped == nullptr) return given;
  const CachePlace place = {clamped(given.page, args.num_pages), clamped(given.slot, args.page_size)};
  if (place.page != given.page || place.slot != given.slot) ptx::atomic_or(args.clamped, 1);
  return place;
}
WEFT_INLINE bool follows(CachePlace place, CachePlace first, int tokens) {
  return place.page == first.page && place.slot == first.slot + tokens;
}

// A head's row, and its scale where it has one.
template <class T>
WEFT_INLINE T* row_at(const CardCache& cache, CachePlace place, int head) {
  const i64 number = place.page * cache.page_stride + place.slot * cache.slot_stride + head * cache.head_stride;
  return static_cast<T*>(cache.data) + number / kNumbers<T>;
}
WEFT_INLINE float* scale_at(const CardCache& cache, CachePlace place, int head) {
  return cache.scale + place.page * cache.scale_page_stride + place.slot * cache.scale_slot_stride +
         head * cache.scale_head_stride;
}

// The largest magnitude of x[0 .. dim) and of one that is known, infinite where one is not finite. All lanes call.
WEFT_INLINE float largest_of(const float* x, int dim, float known) {
  float largest = 0.f, finite = 1.f;
  for (int i = ptx::lane(); i < dim; i += 32) {
    const float size = x[i] < 0.f ? -x[i] : x[i];
    largest = ptx::larger(largest, size);
    finite = size <= 3.4028235e38f ? finite : 0.f;
  }
  const bool all_finite = tile::lane_max(-finite) < 0.f;
  largest = tile::lane_max(largest);
  return ptx::larger(known, all_finite ? largest : ptx::from_bits(0x7f800000u));
}

// x[0 .. dim) times factor. All lanes call.
template <class T>
WEFT_INLINE void write_numbers(T* to, const float* x, int dim, float factor) {
  for (int i = ptx::lane(); i < dim / kNumbers<T>; i += 32) {
    float scaled[kNumbers<T>];
    WEFT_UNROLL
    for (int n = 0; n < kNumbers<T>; ++n) scaled[n] = x[i * kNumbers<T> + n] * factor;
    store_numbers(to + i, scaled);
  }
}

// x[0 .. dim), of which every lane reads what it likes, into a head's row of its place; groups of
// tokens that share a scale: append.h. All lanes call.
template <class T, Scaled kScaled>
WEFT_INLINE void write_row(const CardCache& cache, CachePlace place, int head, const float* x, int dim) {
  float factor = 1.f;
  if constexpr (kScaled != Scaled::none) {
    float* const at = scale_at(cache, place, head);
    float scale;
    if constexpr (kScaled == Scaled::token) {
      scale = scale_for(largest_of(x, dim, 0.f), kLargest<T>);
      if (ptx::lane() == 0) *at = scale;
    } else {
      scale = *at;
    }
    factor = factor_of(scale);
  }
  write_numbers(row_at<T>(cache, place, head), x, dim, factor);
}

}  // namespace weft::ops
