// Keys and values of an item, tile by tile: found kStages tiles ahead, fetched to shared memory kStages - 1 ahead. Page
// ids lie together, and mostly in the nearest cache.
#pragma once

#include "attention/cuda/kernels/mma/rows.h"
#include "tile/cuda/ptx/prefetch.h"

namespace weft::attention::cuda::mma {

// What memory says of a token: its page and, where keys are lists of blocks, its position and the bits of its block.
template <bool kBlockSparse>
struct Listed {
  int page;
};
template <>
struct Listed<true> {
  int page, pos;
  i64 bits;
};

template <class Shape>
class KvTiles {
  using S = typename Shape::S;
  using F = typename Shape::F;
  using T = typename Shape::T;
  static constexpr int kThreads = Shape::kThreads, kStages = Shape::kStages, kKeys = Shape::kKeys;
  static constexpr int kDimQk = Shape::kDimQk, kDimVo = Shape::kDimVo;
  static constexpr int kKeyHalves = Shape::kKeyHalves, kValueHalves = Shape::kValueHalves;
  static constexpr int kKeyBytes = kDimQk * Shape::kKvBits / 8, kValueBytes = kDimVo * Shape::kKvBits / 8;

 public:
  WEFT_INLINE KvTiles(const Rows<Shape>& rows, const Thread<Shape>& thread) : rows_(rows), thread_(thread) {}

  using Listed = mma::Listed<S::kBlockSparse>;
  // Pages of this thread's tokens of the first tiles.
  using FirstPages = Listed[Shape::kFirstTokens];
  // Looks up the item's first tokens, before it is known which of them are seen.
  WEFT_INLINE void look_up(const Tokens<S>& tokens, FirstPages& pages) const {
    WEFT_UNROLL
    for (int i = 0; i < Shape::kFirstTokens; ++i)
      pages[i] =
          tokens.template if_listed<Listed>(rows_.call, rows_.item, rows_.item.kv_begin + thread_.index + i * kThreads);
  }

  // Prefetches the first tiles into L2. Safe before wait_for_previous_kernel(): a later write by that kernel updates
  // the line.
  WEFT_INLINE void prefetch_first(const FirstPages& pages) const {
    const auto& s = Shape::shared();
    WEFT_UNROLL
    for (int i = 0; i < Shape::kFirstTokens; ++i) {
      const int at = thread_.index + i * kThreads, tile = at / kKeys;
      if (tile >= kStages - 1 || tile >= s.walk.num_tiles) continue;
      const int t = token_to_load(rows_, tile, at % kKeys);
      const int page = t == rows_.item.kv_begin + at ? pages[i].page : s.tokens.page(t);
      const auto slot = s.tokens.slot(page, t);
      prefetch(s.tokens.row(rows_.call.k, slot, rows_.kv_head), kKeyBytes);
      prefetch(s.tokens.row(rows_.call.v, slot, rows_.kv_head), kValueBytes);
    }
  }

  // Finds the first kStages tiles.
  WEFT_INLINE void locate_first(const FirstPages& pages) const {
    const auto& s = Shape::shared();
    WEFT_UNROLL
    for (int i = 0; i < Shape::kFirstTokens; ++i) {
      const int at = thread_.index + i * kThreads, tile = at / kKeys, key = at % kKeys;
      if (tile >= kStages || tile >= s.walk.num_tiles) continue;
      const int t = token_to_load(rows_, tile, key);
      locate(tile, key, t, t == rows_.item.kv_begin + at ? pages[i] : look_up(tile, key, t));
    }
  }
  // The token that this thread locates in a tile, and its page, which is a trip to memory: a loop looks up a tile ahead
  // of locate().
  struct Found {
    int t;
    Listed listed;
  };
  WEFT_INLINE Found look_up(int tile, int num_tiles) const {
    if ((kKeys < kThreads && thread_.index >= kKeys) || tile >= num_tiles) return {};
    const int t = token_to_load(rows_, tile, thread_.index);
    return {t, look_up(tile, thread_.index, t)};
  }
  // In place of look_up(), where registers have no room for its answer: copies each thread's page id to where the
  // tile's sources will lie, in the group of copies of the tile kStages before it.
  WEFT_INLINE void fetch_ids(int tile, int num_tiles) const {
    if ((kKeys < kThreads && thread_.index >= kKeys) || tile >= num_tiles) return;
    ptx::cp_async_4(place_of_id(tile), Shape::shared().tokens.id(token_to_load(rows_, tile, thread_.index)));
  }
  WEFT_INLINE Found take_ids(int tile, int num_tiles) const {
    if ((kKeys < kThreads && thread_.index >= kKeys) || tile >= num_tiles) return {};
    return {token_to_load(rows_, tile, thread_.index), {*reinterpret_cast<const int*>(place_of_id(tile))}};
  }
  WEFT_INLINE void locate(int tile, int num_tiles, const Found& found) const {
    if ((kKeys < kThreads && thread_.index >= kKeys) || tile >= num_tiles) return;
    locate(tile, thread_.index, found.t, found.listed);
  }

  // Starts to copy a tile that was located to its stage; nothing where there is no such tile.
  WEFT_INLINE void fetch(int tile, int num_tiles) const {
    if (tile < num_tiles) copy(tile);
  }

  // Replaces the tile's keys by what their hook makes of them, rounded to the type that is multiplied.
  WEFT_INLINE void transform_keys(int tile) const {
    const auto keys = Shape::keys_of(tile % kStages);
    const auto* const sources = Shape::shared().sources[tile % Shape::kRing];
    const int at = Shape::shared().walk.at(tile), begin = rows_.item.first_pos + at;
    WEFT_NO_UNROLL
    for (int key = thread_.warp; key < kKeys; key += Shape::kWarps) {
      if (at + key >= Shape::shared().walk.end) break;
      float* const raw = Shape::shared().scratch.vectors[thread_.warp];
      const auto at_element = [&](int i) { return reinterpret_cast<T*>(keys.chunk(key, i / 8)) + i % 8; };
      for (int i = thread_.lane; i < kDimQk; i += 32) raw[i] = tile::to_float(*at_element(i));
      if constexpr (Shape::H::key_transform)
        transform_token<F, true, kDimQk>(rows_.p, rows_.item, rows_.kv_head, at + key,
                                         position_of_key(sources, begin, key), raw,
                                         [&](int i, float x) { tile::store(at_element(i), x); });
    }
    Shape::publish();
    ptx::cta_sync();
  }

 private:
  WEFT_INLINE float* place_of_id(int tile) const {
    return reinterpret_cast<float*>(&Shape::shared().sources[tile % Shape::kRing][thread_.index]);
  }
  WEFT_INLINE static void prefetch(const char* row, int bytes) {
    constexpr int kComesAtLeast = 64;
    WEFT_UNROLL
    for (int at = 0; at < bytes; at += kComesAtLeast) ptx::prefetch(row + at);
  }
  // Looks up token t for place `key` of a tile. Position and bits are those of the place's own token.
  WEFT_INLINE Listed look_up(int tile, int key, int t) const {
    const auto& tokens = Shape::shared().tokens;
    if constexpr (S::kBlockSparse) {
      const int own = own_token(tile, key);
      return {tokens.page(t), tokens.position(rows_.call, rows_.item, own), tokens.bits(rows_.call, rows_.item, own)};
    } else {
      return {tokens.page(t)};
    }
  }
  // The token of a place, or the item's last one behind its end.
  WEFT_INLINE int own_token(int tile, int key) const {
    const auto& walk = Shape::shared().walk;
    const int own = walk.at(tile) + key;
    return own < walk.end ? own : walk.end - 1;
  }
  WEFT_INLINE void locate(int tile, int key, int t, const Listed& listed) const {
    auto& s = Shape::shared();
    Source<S::kBlockSparse>& source = s.sources[tile % Shape::kRing][key];
    const auto slot = s.tokens.slot(listed.page, t);
    source.k = s.tokens.row(rows_.call.k, slot, rows_.kv_head);
    source.v = s.tokens.row(rows_.call.v, slot, rows_.kv_head);
    if constexpr (S::kBlockSparse) {
      source.bits = listed.bits;
      source.pos = listed.pos;
    }
    if constexpr (Shape::kTokenScales) {  // they land with the first tile that is fetched from here on
      TokenScales<Shape>& scales = token_scales<Shape>(tile);
      const auto of = [&](const TokensView& view) {
        return s.tokens.template row<S::kScaleGroup>(view, slot, rows_.kv_head);
      };
      ptx::cp_async_4(&scales.of_key[key], of(rows_.call.k_scale));
      ptx::cp_async_4(&scales.of_value[key], of(rows_.call.v_scale));
    }
  }
  WEFT_INLINE void copy(int tile) const {
    using CopyKeys = RowCopy<kThreads, kKeyHalves, typename Shape::Keys>;
    using CopyValues = RowCopy<kThreads, kValueHalves, typename Shape::Values>;
    const auto* const sources = Shape::shared().sources[tile % Shape::kRing];
    const auto keys = Shape::keys_of(tile % kStages);
    const auto values = Shape::values_of(tile % kStages);
    const CopyKeys of_keys(keys, thread_.index);
    const CopyValues of_values(values, thread_.index);
    // Where registers have room, sources are read some copies ahead: each read behind a copy waits for its own trip.
    constexpr int kCopies = CopyKeys::template kCopies<kKeys>;
    constexpr int kAhead = !Shape::kIsAlone ? 1 : kCopies % 8 == 0 ? 8 : kCopies % 4 == 0 ? 4 : 1;
    WEFT_UNROLL
    for (int first = 0; first < kCopies; first += kAhead) {
      const char *k[kAhead], *v[kAhead];
      WEFT_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        if (!of_keys.template has<kKeys>(first + i)) continue;
        k[i] = sources[of_keys.row(first + i)].k;
        v[i] = sources[of_keys.row(first + i)].v;
      }
      WEFT_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        if (!of_keys.template has<kKeys>(first + i)) continue;
        of_keys.template copy<kKeyBytes>(keys, first + i, k[i]);
        if constexpr (kKeyHalves == kValueHalves) of_values.template copy<kValueBytes>(values, first + i, v[i]);
      }
    }
    if constexpr (kKeyHalves != kValueHalves) WEFT_UNROLL
    for (int i = 0; i < CopyValues::template kCopies<kKeys>; ++i)
      if (of_values.template has<kKeys>(i))
        of_values.template copy<kValueBytes>(values, i, sources[of_values.row(i)].v);
  }

  const Rows<Shape>& rows_;
  const Thread<Shape>& thread_;
};

}  // namespace weft::attention::cuda::mma
