// Queries and keys that a variant's hooks change, where they lie, before those who multiply are told of them. Eight
// lanes have a vector, so that a warp's waits are those of four at a time.
#pragma once

#include "attention/cuda/kernels/producer/shape.h"

namespace weft::attention::cuda::producer {

#if WEFT_SM >= 90
// Of the first n rows of a tile each becomes hook(r)(x, i), i its elements and x what it was. All loaders call, once
// the rows are there for all of them.
template <class Shape, class Tile, class Hook>
WEFT_INLINE void transform_rows(const Tile& tile, int n, int thread, const Hook& hook) {
  using T = typename Shape::T;
  constexpr int kLanes = Shape::kLoaders / Shape::kVectors, kDim = Shape::kDimQk;
  static_assert(kLanes == 8);
  const int lane = thread % kLanes;
  float* const raw = Shape::shared().vectors[thread / kLanes];
  WEFT_NO_UNROLL
  for (int first = 0; first < n; first += Shape::kVectors) {
    const int r = first + thread / kLanes, dim = r < n ? kDim : 0;
    float sum = 0, squares = 0;
    WEFT_NO_UNROLL
    for (int c = lane; c < dim / 8; c += kLanes) {
      const Bytes16 chunk = *reinterpret_cast<const Bytes16*>(tile.chunk(r, c));
      WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        Bytes16 four;
        WEFT_UNROLL
        for (int w = 0; w < 2; ++w) {
          float two[2];
          tile::unpack<T>(chunk.word[2 * half + w], two);
          WEFT_UNROLL
          for (int e = 0; e < 2; ++e) {
            four.word[2 * w + e] = ptx::to_bits(two[e]);
            sum += two[e];
            squares += two[e] * two[e];
          }
        }
        reinterpret_cast<Bytes16*>(raw)[2 * c + half] = four;
      }
    }
    ptx::warp_sync();
    const Vec x{raw, kDim, tile::lane_sum<kLanes>(sum), tile::lane_sum<kLanes>(squares)};
    auto of_row = hook(r < n ? r : 0);
    WEFT_UNROLL_4
    for (int i = lane; i < dim; i += kLanes)
      tile::store(reinterpret_cast<T*>(tile.chunk(r, i / 8)) + i % 8, of_row(x, i));
    ptx::warp_sync();
  }
}

template <class Shape>
WEFT_INLINE void transform_queries(const Rows<Shape>& rows, int stage, int thread) {
  using F = typename Shape::F;
  WEFT_NO_UNROLL
  for (int group = 0; 64 * group < rows.n; ++group) {
    const int n = rows.n - 64 * group < 64 ? rows.n - 64 * group : 64;
    transform_rows<Shape>(Shape::queries(stage, group), n, thread, [&](int r) {
      const FusedRow& row = rows.row(64 * group + r);
      const Row of{row.request, row.idx, row.pos, row.head, 0.f};
      return [&p = rows.p, of, state = F::enter(rows.p, row.request)](const Vec& x, int i) mutable {
        return static_cast<float>(state.variant.query_transform(p, x, i, of));
      };
    });
  }
}

// Of a tile that begins among the item's keys.
template <class Shape>
WEFT_INLINE void transform_keys(const Rows<Shape>& rows, int tile, int stage, int thread) {
  using F = typename Shape::F;
  const int at = rows.walk().at(tile), left = rows.walk().end - at;
  const int begin = rows.item.first_pos + at;
  const auto sources = rows.sources(tile);
  transform_rows<Shape>(Shape::keys_of(stage), left < Shape::kKeys ? left : Shape::kKeys, thread, [&](int key) {
    const Row of{rows.item.request, begin + key, mma::position_of_key(sources, begin, key), rows.kv_head, 0.f};
    return [&p = rows.p, of, state = F::enter(rows.p, rows.item.request)](const Vec& x, int i) mutable {
      return static_cast<float>(state.variant.key_transform(p, x, i, of));
    };
  });
}
#endif

}  // namespace weft::attention::cuda::producer
