// The rows of a tile: which they are, what they see, and their queries.
#pragma once

#include "attention/cuda/kernels/mma/row_copy.h"
#include "attention/cuda/kernels/mma/scales.h"
#include "attention/cuda/kernels/mma/shape.h"
#include "attention/cuda/kernels/vectors.h"

namespace weft::attention::cuda::mma {

// The position of a key of a tile that begins at position `begin`.
template <class Key>
WEFT_INLINE int position_of_key(const Key* keys, int begin, int key) {
  if constexpr (requires { keys->pos; })
    return keys[key].pos;
  else
    return begin + key;
}

// n fused rows of one KV head of an item, from its fused row `first` on; where they lie is said by who derives from it.
template <class Shape>
struct RowsOfItem {
  using F = typename Shape::F;
  const Call& call;
  const typename F::P& p;
  const ItemRecord& item;
  const int kv_head, first, n;

  // The factor from scores to logits, where the softmax takes it in; else 1: where a functor sees logits, the largest
  // score is not the largest logit, or log2(e) times the factor is no normal number.
  WEFT_INLINE float scale() const {
    return !Shape::kFunctor && scale_of_logits() > 0x1p-100f && scale_of_logits() < 0x1p100f ? scale_of_logits() : 1.f;
  }
  // Whether scores are multiplied by the factor before the softmax.
  WEFT_INLINE bool scales_logits() const { return scale() != scale_of_logits(); }
  // The factor from products of a head's stored numbers to logits.
  WEFT_INLINE float scale_of_logits() const { return p.sm_scale * HeadScales<Shape>::of_key(item); }
  WEFT_INLINE bool by_position() const { return Shape::S::kBlockSparse && header().positions_per_page > 0; }
  WEFT_INLINE bool has_bits() const { return Shape::S::kBlockSparse && header().bits_index.count > 0; }
  // Whether rows may see different keys.
  WEFT_INLINE bool may_differ() const { return item.num_rows > 1 || by_position() || has_bits(); }
};

// One warp calls. Finds what the rows see together, and the tiles of keys [begin, end) that hold some of it.
template <int kKeys, class Rows>
WEFT_INLINE void find_seen_tiles(const Rows& rows, const FusedRow* fused, int begin, int end, VisibleRange& visible,
                                 Walk<kKeys>& walk) {
  const VisibleRange hull = hull_of(fused, rows.n);
  const bool everything = rows.by_position() || rows.call.mask_error != nullptr;
  const Walk<kKeys> tiles =
      everything ? Walk<kKeys>::over(begin, end) : Walk<kKeys>::over_seen(hull, rows.item.first_pos, begin, end);
  if (ptx::lane() != 0) return;
  visible = hull;
  walk = tiles;
}

// The token to load as a tile's key `key`: its own, or the walk's last one in place of one that no row sees or that is
// not there.
template <class Rows>
WEFT_INLINE int token_to_load(const Rows& rows, int tile, int key) {
  const auto walk = rows.walk();
  const auto visible = rows.visible();
  const int t = walk.at(tile) + key, pos = rows.item.first_pos + t;
  const bool is_there = t < walk.end, is_seen = rows.by_position() || visible.holds(pos);
  return is_there && is_seen ? t : walk.end - 1;
}

// In the CTA's shared memory.
template <class Shape>
struct Rows : RowsOfItem<Shape> {
  using F = typename Shape::F;
  using T = typename Shape::T;
  static constexpr int kRows = Shape::kRows, kDimQk = Shape::kDimQk, kPadQk = Shape::kPadQk;
  using RowsOfItem<Shape>::call, RowsOfItem<Shape>::p, RowsOfItem<Shape>::item;
  using RowsOfItem<Shape>::kv_head, RowsOfItem<Shape>::first, RowsOfItem<Shape>::n;

  WEFT_INLINE static const FusedRow& row(int r) { return Shape::shared().rows[r]; }
  WEFT_INLINE static const VisibleRange& visible() { return Shape::shared().visible; }
  WEFT_INLINE static const Walk<Shape::kKeys>& walk() { return Shape::shared().walk; }
  WEFT_INLINE static const Source<Shape::S::kBlockSparse>* sources(int tile) {
    return Shape::shared().sources[tile % Shape::kRing];
  }
  WEFT_INLINE static const TokenScales<Shape>& token_scales(int tile) { return mma::token_scales<Shape>(tile); }

  // Finds the rows. Those behind the last one are that one again, so that functors see what exists. Rows are dealt from
  // the last thread on: the first ones look for pages meanwhile.
  WEFT_INLINE void load(const Thread<Shape>& thread) const {
    WEFT_NO_UNROLL
    for (int r = Shape::kThreads - 1 - thread.index; r < kRows; r += Shape::kThreads)
      Shape::shared().rows[r] = fused_row(call, item, kv_head, first + (r < n ? r : n - 1));
  }

  // One warp calls, once the rows are there. Finds what they see together, and the tiles that hold some of it, up to
  // the item's end.
  WEFT_INLINE void find_visible(int end) const {
    auto& s = Shape::shared();
    find_seen_tiles<Shape::kKeys>(*this, s.rows, item.kv_begin, end, s.visible, s.walk);
  }

  // Starts to copy queries to shared memory, or stores what their hook makes of them.
  WEFT_INLINE void load_queries(const Thread<Shape>& thread) const {
    if constexpr (Shape::H::query_transform) {
      WEFT_NO_UNROLL
      for (int at = thread.warp; at < kRows; at += Shape::kWarps) {
        const auto store = [&](int i, float x) {
          tile::store(reinterpret_cast<T*>(Shape::queries().chunk(at, i / 8)) + i % 8, x);
        };
        load_query<typename Shape::S, F>(call, p, Shape::shared().rows[Shape::row_at(at)],
                                         Shape::shared().scratch.vectors[thread.warp], store);
        for (int i = kDimQk + thread.lane; i < kPadQk; i += 32) store(i, 0.f);
      }
    } else {
      using Copy = RowCopy<Shape::kThreads, kPadQk, typename Shape::Queries>;
      const Copy copy(Shape::queries(), thread.index);
      WEFT_UNROLL
      for (int i = 0; i < Copy::template kCopies<kRows>; ++i)
        if (copy.template has<kRows>(i))
          copy.template copy<2 * kDimQk>(Shape::queries(), i,
                                         query_of(call, Shape::shared().rows[Shape::row_at(copy.row(i))]));
    }
  }
};

}  // namespace weft::attention::cuda::mma
