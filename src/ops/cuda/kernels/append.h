// New keys and values into their pages, and in a layer of a model what stands before that: a warp a row and head.
//
// The generated text instantiates them for the types of a cache: WEFT_APPEND(symbol, element, scaled) and
// WEFT_QKV(symbol, element, scaled, type of queries), scaled one of Scaled.
#pragma once

#include "ops/cuda/kernels/cache.h"
#include "ops/cuda/kernels/gates.h"
#include "ops/cuda/kernels/rows.h"
#include "tile/cuda/ptx/dependent_launch.h"

namespace weft::ops {

inline constexpr int kAppendWarps = 8;

// A head of the new rows of a group of tokens that share a scale, by the warp of the first of them. Where the scale
// outgrows that of the group's tokens before them, these are rounded anew.
template <class T>
WEFT_INLINE void append_group(const AppendArgs& args, i64 row, int head) {
  const CachePlace place = place_of(args, row);
  const int begin = place.slot / args.group * args.group;
  const bool has_older = place.slot > begin;
  if (has_older && row > 0 && follows(place, place_of(args, row - 1), 1)) return;
  const i64 num_rows = args.rows / args.heads;
  int count = 0;
  float largest = 0.f;
  do {
    largest = largest_of(row_of(args.x, (row + count) * args.heads + head), args.dim, largest);
    ++count;
  } while (row + count < num_rows && place.slot + count < begin + args.group &&
           follows(place_of(args, row + count), place, count));
  float* const at = scale_at(args.to, {place.page, place.slot / args.group}, head);
  const float old = has_older ? *at : 0.f, grown = scale_for(largest, kLargest<T>);
  const bool keeps = has_older && grown <= old;
  const float scale = keeps || old != old ? old : grown, factor = factor_of(scale);
  ptx::warp_sync();  // all lanes have the old one
  if (!keeps && ptx::lane() == 0) *at = scale;
  for (int slot = begin; !keeps && slot < place.slot; ++slot) {
    T* const older = row_at<T>(args.to, {place.page, slot}, head);
    for (int i = ptx::lane(); i < args.dim / kNumbers<T>; i += 32) {
      float x[kNumbers<T>];
      load_numbers(older[i], x);
      WEFT_UNROLL
      for (float& number : x) number = number * old * factor;
      store_numbers(older + i, x);
    }
  }
  for (int i = 0; i < count; ++i)
    write_numbers(row_at<T>(args.to, {place.page, place.slot + i}, head), row_of(args.x, (row + i) * args.heads + head),
                  args.dim, factor);
}

template <class T, Scaled kScaled>
WEFT_INLINE void append_rows(const AppendArgs& args) {
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  const i64 warps = static_cast<i64>(ptx::num_ctas()) * kAppendWarps;
  for (i64 i = static_cast<i64>(ptx::cta_index()) * kAppendWarps + ptx::warp(); i < args.rows; i += warps) {
    const i64 row = i / args.heads;
    const int head = static_cast<int>(i % args.heads);
    if constexpr (kScaled == Scaled::token_group)
      append_group<T>(args, row, head);
    else
      write_row<T, kScaled>(args.to, place_of(args, row), head, row_of(args.x, i), args.dim);
  }
}

// Shared memory: of a warp dim floats for a row, and as many for its angles.
template <class T, Scaled kScaled, class Query>
struct Qkv {
  WEFT_INLINE static void run(const QkvArgs& args) {
    ptx::allow_next_kernel();
    const int heads = args.num_qo_heads + 2 * args.num_kv_heads;
    const int warps = ptx::num_ctas() * kAppendWarps, num_rows = static_cast<int>(args.rows) * heads;
    float* x = reinterpret_cast<float*>(ptx::shared_memory()) + ptx::warp() * 2 * args.dim;
    WEFT_NO_UNROLL
    for (int i = ptx::cta_index() * kAppendWarps + ptx::warp(); i < num_rows; i += warps) {
      // No kernel before this one writes places and angles: they come while it ends.
      const CachePlace place = args.places[i / heads];
      load_angles(args, i / heads, x + args.dim);
      ptx::wait_for_previous_kernel();
      finish(args, i / heads, place, i % heads, heads, x);
      ptx::warp_sync();  // before the next row takes its place
    }
    ptx::wait_for_previous_kernel();  // without rows, too: who waits for this kernel waits for those before it
  }

 private:
  WEFT_INLINE static void load_angles(const QkvArgs& args, i64 row, float* to) {
    for (int i = ptx::lane(); i < args.pairs; i += 32) {
      to[2 * i] = args.cos[row * args.pairs + i];
      to[2 * i + 1] = args.sin[row * args.pairs + i];
    }
  }
  // One head of a row; behind x its angles.
  WEFT_INLINE static void finish(const QkvArgs& args, i64 row, CachePlace place, int head, int heads, float* x) {
    const bool is_query = head < args.num_qo_heads, is_value = head >= args.num_qo_heads + args.num_kv_heads;
    const float* from = args.qkv + (row * heads + head) * args.dim;
    const float* angles = x + args.dim;
    for (int i = ptx::lane(); i < args.dim; i += 32)
      x[i] = from[i] + (args.bias != nullptr ? args.bias[static_cast<i64>(head) * args.dim + i] : 0.f);
    const float* norm = is_query ? args.q_norm : is_value ? nullptr : args.k_norm;
    if (norm != nullptr) {
      const NormFactors factors = norm_factors(args.dim, args.eps, [&](int i) { return x[i]; });
      WEFT_NO_UNROLL
      for (int i = ptx::lane(); i < args.dim; i += 32) x[i] = x[i] * factors.before * factors.after * norm[i];
    }
    ptx::warp_sync();
    if (!is_value) {
      for (int i = ptx::lane(); i < args.pairs; i += 32)
        rotate(x[args.halves ? i : 2 * i], x[args.halves ? i + args.pairs : 2 * i + 1], angles[2 * i],
               angles[2 * i + 1]);
      ptx::warp_sync();
    }
    if (is_query) {
      Query* to = static_cast<Query*>(args.q) + (row * args.num_qo_heads + head) * args.dim;
      for (int i = ptx::lane(); i < args.dim; i += 32) tile::store(to + i, x[i]);
    } else if (is_value) {
      write_row<T, kScaled>(args.v, place, head - args.num_qo_heads - args.num_kv_heads, x, args.dim);
    } else {
      write_row<T, kScaled>(args.k, place, head - args.num_qo_heads, x, args.dim);
    }
  }
};

}  // namespace weft::ops

#define WEFT_APPEND(symbol, element, scaled)                               \
  WEFT_KERNEL(256, 1) void symbol(WEFT_PARAM weft::ops::AppendArgs args) { \
    weft::ops::append_rows<element, weft::ops::Scaled::scaled>(args);      \
  }
#define WEFT_QKV(symbol, element, scaled, query)                          \
  WEFT_KERNEL(256, 1) void symbol(WEFT_PARAM weft::ops::QkvArgs args) {   \
    weft::ops::Qkv<element, weft::ops::Scaled::scaled, query>::run(args); \
  }
