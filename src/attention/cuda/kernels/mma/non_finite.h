// Values that are not finite reach only rows that see them. Where a row does not, its probability is 0, and 0 times NaN
// is NaN: what such values would make of a tile is seen at the end; then all is done again with them left out, and they
// are added to the rows that see them. Before sm_89 a code of fp8 that is NaN makes another number of a product: it is
// looked for in each tile, and keys that have some are multiplied one by one (special_keys.h) when all is done again.
#pragma once

#include "attention/cuda/kernels/mma/rows.h"
#include "attention/cuda/kernels/mma/states.h"

namespace weft::attention::cuda::mma {

WEFT_INLINE bool is_finite(float x) { return x - x == 0.f; }

// Calls add(r, i, v) for values that are not finite and rows [row_begin, row_end) that see them; of a value's elements
// number `first`, and each `stride` of them behind it.
template <class Shape, class TileRows, class Add>
WEFT_INLINE void for_non_finite(const TileRows& rows, int row_begin, int row_end, int first, int stride,
                                const Add& add) {
  using S = typename Shape::S;
  WEFT_NO_UNROLL
  for (int t = rows.item.kv_begin; t < rows.walk().end; ++t) {
    const int pos = position_of(rows.call, rows.item, t);
    if (!rows.visible().touches(pos, pos + 1)) continue;
    const i64 bits = bits_of_token(rows.call, rows.item, t);
    const Tokens<S> tokens(rows.call, rows.item);
    const auto slot = tokens.slot(tokens.page(t), t);
    const char* const row = tokens.row(rows.call.v, slot, rows.kv_head);
    float scale = HeadScales<Shape>::of_value(rows.item);
    if constexpr (Shape::kTokenScales)
      scale =
          *reinterpret_cast<const float*>(tokens.template row<S::kScaleGroup>(rows.call.v_scale, slot, rows.kv_head));
    WEFT_NO_UNROLL
    for (int i = first; i < Shape::kDimVo; i += stride) {
      const float v = scale * element<typename S::Cache>(row, i);
      if (is_finite(v)) continue;
      WEFT_NO_UNROLL
      for (int r = row_begin; r < row_end; ++r)
        if (rows.row(r).visible.holds(pos) && bits_show(rows.call, bits, rows.row(r).of_block, t)) add(r, i, v);
    }
  }
}
// To the outputs of rows, which the CTA wrote: a thread has some elements of all rows.
template <class Shape, class TileRows, class Outputs>
WEFT_INLINE void add_non_finite(const TileRows& rows, const Thread<Shape>& thread, const Outputs& outputs) {
  sync_threads<typename Shape::S>();
  for_non_finite<Shape>(rows, 0, rows.n, thread.index, Shape::kThreads,
                        [&](int r, int i, float v) { outputs.add(r, i, v); });
  sync_threads<typename Shape::S>();
}

template <class Shape>
class NonFinite {
  using Cache = typename Shape::S::Cache;
  static constexpr int kThreads = Shape::kThreads;

 public:
  WEFT_INLINE explicit NonFinite(bool started = false) : started_(started) {}

  // Whether all has to be done again, from here on with such values left out.
  WEFT_INLINE bool start(const Rows<Shape>& rows, const Thread<Shape>& thread, const States<Shape>& states) {
    if (started_ || !(rows.may_differ() || tile::kHasSpecials<Cache>) || !has_some(thread, states)) return false;
    started_ = true;
    if constexpr (Shape::Halves::kLosesSpecials)
      if (thread.index == 0) Shape::shared().special_keys = 1;
    return true;
  }

  // A tile that is about to be multiplied: such values are found, and once started zeros take their place.
  WEFT_INLINE void look_at(const Thread<Shape>& thread, int tile) {
    if (!started_)
      find_specials(thread, tile % Shape::kStages);
    else
      leave_out(thread, tile);
  }

  // To outputs, joined or stored, once the CTA wrote them.
  template <class Outputs>
  WEFT_INLINE void add(const Rows<Shape>& rows, const Thread<Shape>& thread, const Outputs& outputs) const {
    if (started_) add_non_finite<Shape>(rows, thread, outputs);
  }

 private:
  WEFT_INLINE void leave_out(const Thread<Shape>& thread, int tile) const {
    const auto values = Shape::values_of(tile % Shape::kStages);
    if constexpr (!Shape::kFewBits || tile::kHasSpecials<Cache>) {
      constexpr int kOfChunk = 16 / static_cast<int>(sizeof(Cache));
      WEFT_NO_UNROLL
      for (int i = thread.index; i < Shape::kKeys * Shape::kPadVo; i += kThreads) {
        const int row = i / Shape::kPadVo, column = i % Shape::kPadVo;
        Cache* const x = reinterpret_cast<Cache*>(values.chunk(row, column / kOfChunk)) + column % kOfChunk;
        if (!is_finite(tile::to_float(*x))) x->bits = 0;
      }
    }
    if constexpr (Shape::kTokenScales)
      if (float& scale = token_scales<Shape>(tile).of_value[thread.index % Shape::kKeys];
          thread.index < Shape::kKeys && !is_finite(scale))
        scale = 0;
    Shape::publish();
    ptx::cta_sync();
  }
  WEFT_INLINE void find_specials(const Thread<Shape>& thread, int stage) {
    if constexpr (Shape::Halves::kLosesSpecials) {
      const u8* const begin = Shape::keys_of(stage).data;  // values lie behind
      WEFT_UNROLL_4
      for (int at = 16 * thread.index; at < Shape::kStageBytes; at += 16 * kThreads) {
        const Bytes16 numbers = *reinterpret_cast<const Bytes16*>(begin + at);
        WEFT_UNROLL
        for (int w = 0; w < 4; ++w) special_ |= tile::specials(numbers.word[w]);
      }
    }
  }
  // In the CTA's outputs.
  WEFT_INLINE bool has_some(const Thread<Shape>& thread, const States<Shape>& states) const {
    auto& s = Shape::shared();
    bool found = states.has_non_finite();
    if constexpr (Shape::Halves::kLosesSpecials) found = ptx::ballot((special_ & 0x80808080u) != 0) != 0 || found;
    if (thread.lane == 0) s.not_finite[thread.warp] = found;
    ptx::cta_sync();
    bool finite = true;
    WEFT_UNROLL
    for (int w = 0; w < Shape::kWarps; ++w) finite = finite && s.not_finite[w] == 0;
    return !finite;
  }

  bool started_;
  u32 special_ = 0;  // of what this thread has looked at
};

}  // namespace weft::attention::cuda::mma
