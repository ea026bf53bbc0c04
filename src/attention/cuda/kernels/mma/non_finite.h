// Values that are not finite reach only rows that see them. Where a row does not, its probability is 0, and 0 times NaN
// is NaN: what such values would make of a tile is seen at the end; then all is done again with them left out, and they
// are added to the rows that see them.
#pragma once

#include "attention/cuda/kernels/mma/rows.h"
#include "attention/cuda/kernels/mma/states.h"

namespace weft::attention::cuda::mma {

WEFT_INLINE bool is_finite(float x) { return x - x == 0.f; }

template <class Shape>
class NonFinite {
  using S = typename Shape::S;
  using T = typename Shape::T;
  static constexpr int kThreads = Shape::kThreads;

 public:
  WEFT_INLINE explicit NonFinite(bool started = false) : started_(started) {}

  // Whether all has to be done again, from here on with such values left out.
  WEFT_INLINE bool start(const Rows<Shape>& rows, const Thread<Shape>& thread, const States<Shape>& states) {
    if (started_ || !rows.may_differ() || !has_some(thread, states)) return false;
    started_ = true;
    return true;
  }

  // Zeros in their place, in a tile that is about to be multiplied.
  WEFT_INLINE void leave_out(const Thread<Shape>& thread, int stage) const {
    if (!started_) return;
    const auto values = Shape::values_of(stage);
    WEFT_NO_UNROLL
    for (int i = thread.index; i < Shape::kKeys * Shape::kPadVo; i += kThreads) {
      T* const x = reinterpret_cast<T*>(values.chunk(i / Shape::kPadVo, i % Shape::kPadVo / 8)) + i % 8;
      if (!is_finite(tile::to_float(*x))) x->bits = 0;
    }
    Shape::publish();
    ptx::cta_sync();
  }

  // To outputs, joined or stored, once the CTA wrote them; a thread has some elements of all rows.
  template <class Outputs>
  WEFT_INLINE void add(const Rows<Shape>& rows, const Thread<Shape>& thread, const Outputs& outputs) const {
    if (!started_) return;
    const auto& s = Shape::shared();
    ptx::cta_sync();
    WEFT_NO_UNROLL
    for (int t = rows.item.kv_begin; t < s.walk.end; ++t) {
      const int pos = position_of(rows.call, rows.item, t);
      if (!s.visible.touches(pos, pos + 1)) continue;
      const i64 bits = bits_of_token(rows.call, rows.item, t);
      const Tokens<S> tokens(rows.call, rows.item);
      const char* const row = tokens.row(rows.call.v, tokens.page(t), t, rows.kv_head);
      WEFT_NO_UNROLL
      for (int i = thread.index; i < Shape::kDimVo; i += kThreads) {
        const float v = element<T>(row, i);
        if (is_finite(v)) continue;
        WEFT_NO_UNROLL
        for (int r = 0; r < rows.n; ++r)
          if (s.rows[r].visible.holds(pos) && bits_show(rows.call, bits, s.rows[r].of_block, t)) outputs.add(r, i, v);
      }
    }
    ptx::cta_sync();
  }

 private:
  // In the CTA's outputs.
  WEFT_INLINE static bool has_some(const Thread<Shape>& thread, const States<Shape>& states) {
    auto& s = Shape::shared();
    const bool found = states.has_non_finite();
    if (thread.lane == 0) s.not_finite[thread.warp] = found;
    ptx::cta_sync();
    bool finite = true;
    WEFT_UNROLL
    for (int w = 0; w < Shape::kWarps; ++w) finite = finite && s.not_finite[w] == 0;
    return !finite;
  }

  bool started_;
};

}  // namespace weft::attention::cuda::mma
