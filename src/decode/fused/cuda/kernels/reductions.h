// Sums of a product become what the next one multiplies: the owner of some columns adds their pieces, does what the
// model does column by column, and leaves pairs in bf16 for all. The residual stays with its owners.
//
// The rows of a norm are not divided by its rms, which joins the columns of all owners: squares are left beside them,
// and whoever multiplies has the factor of all.
#pragma once

#include "decode/fused/cuda/kernels/inputs.h"
#include "ops/cuda/kernels/gates.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
template <class Shape>
class Reductions {
 public:
  WEFT_INLINE explicit Reductions(const Worker<Shape>& worker) : worker_(worker) {}

  // Each is false, by lanes, where what it is made of did not come. A row of the residual is a warp's, always the same
  // one's: what it keeps needs no barrier.

  // Sums of M [+ bias] stay, and their squares are left.
  template <class M>
  WEFT_INLINE bool squares(const float* bias, u32 from, u32 to) const {
    return each_own_pair([&](int row, int pair, int column) {
      float sums[1][2];
      const bool are_there = sums_of<M, 1>(row, column, 0, from, sums);
      add_bias(bias, column, sums[0]);
      if (column >= 0) *reinterpret_cast<tile::Floats2*>(worker_.sums(row) + 2 * pair) = {{sums[0][0], sums[0][1]}};
      leave_squares(Shape::kSquares, row, pair, sums[0], to);
      return are_there;
    });
  }

  // The residual with sums of M [+ bias], times norm.
  template <class M>
  WEFT_INLINE bool added(const float* bias, const float* norm, u32 from, u32 to) const {
    return each_own_pair([&](int row, int pair, int column) {
      float sums[1][2];
      const bool are_there = sums_of<M, 1>(row, column, 0, from, sums);
      add_bias(bias, column, sums[0]);
      leave(row, pair, column, sums[0], norm, to);
      return are_there;
    });
  }

  // The residual with the sums that were kept, normed by post_norm; times norm.
  WEFT_INLINE bool added_normed(const float* post_norm, const float* norm, u32 from, u32 to) const {
    bool are_there = true;
    for (int row = worker_.thread / 32; row < worker_.args.rows; row += kConsumerWarps) {
      float factor;
      are_there = factor_of_sums(row, from, factor) && are_there;
      each_own_pair_of([&](int pair, int column) {
        float sums[2] = {};
        WEFT_UNROLL
        for (int e = 0; e < 2; ++e)
          if (column >= 0) sums[e] = worker_.sums(row)[2 * pair + e] * factor * post_norm[column + e];
        leave(row, pair, column, sums, norm, to);
        return true;
      });
    }
    return are_there;
  }

  // gate(gate) * up, of the sums of both.
  template <class GateUp>
  WEFT_INLINE bool gated(u32 from, u32 to) const {
    constexpr int kCols = GateUp::kRows / 2;
    const OwnColumns own(worker_, kCols);
    const int pairs = own.count / 2, count = worker_.args.rows * pairs;
    bool are_there = true;
    WEFT_NO_UNROLL
    for (int i = worker_.thread; i < count; i += kConsumers) {
      const int row = i / pairs, column = own.first + i % pairs * 2;
      float sums[2][2];
      are_there = sums_of<GateUp, 2>(row, column < kCols ? column : -1, kCols, from, sums) && are_there;
      tile::TaggedEdge::write_bits(
          worker_.args.cells + Shape::kGated + static_cast<i64>(row) * row_pairs(kCols) + column / 2,
          tile::pack<bf16>(ops::gate_of(sums[0][0], Shape::kIsGelu) * sums[1][0],
                           ops::gate_of(sums[0][1], Shape::kIsGelu) * sums[1][1]),
          to);
    }
    return are_there;
  }

 private:
  // Of the residual.
  WEFT_INLINE OwnColumns own() const { return {worker_, Shape::kHidden}; }

  // make(row, pair of the worker's own, its first column, -1: beyond the last), by all lanes of the row's warp.
  template <class Make>
  WEFT_INLINE bool each_own_pair(const Make& make) const {
    bool are_there = true;
    WEFT_NO_UNROLL
    for (int row = worker_.thread / 32; row < worker_.args.rows; row += kConsumerWarps)
      are_there = each_own_pair_of([&](int pair, int column) { return make(row, pair, column); }) && are_there;
    return are_there;
  }
  template <class Make>
  WEFT_INLINE bool each_own_pair_of(const Make& make) const {
    const OwnColumns own = this->own();
    bool are_there = true;
    WEFT_NO_UNROLL
    for (int first = 0; first < own.count / 2; first += 32) {
      const int pair = first + ptx::lane(), column = own.first + 2 * pair;
      are_there = make(pair, pair < own.count / 2 && column < Shape::kHidden ? column : -1) && are_there;
    }
    return are_there;
  }

  // Of a pair of columns, and of those that are `apart` columns behind it: the pieces of panel 0, then of panel 1, and
  // so on. column -1: none.
  template <class M, int kHalves>
  WEFT_INLINE bool sums_of(int row, int column, int apart, u32 tag, float (&sums)[kHalves][2]) const {
    constexpr int kOfHalf = M::kPanels * M::kPieces, kLoads = kHalves * kOfHalf;
    constexpr int kAtOnce = kLoads < kMostLoads ? kLoads : kMostLoads;
    bool are_there = true;
    WEFT_UNROLL
    for (int half = 0; half < kHalves; ++half) sums[half][0] = sums[half][1] = 0;
    WEFT_UNROLL
    for (int first = 0; first < kLoads; first += kAtOnce) {
      float values[kAtOnce][2];
      const auto at = [&](int i) {
        const int load = first + i, in_half = load % kOfHalf;
        return column < 0 || load >= kLoads
                   ? -1
                   : place<M>(row, column + load / kOfHalf * apart, in_half / M::kPieces, in_half % M::kPieces);
      };
      are_there = worker_.edge().template read_where<kAtOnce>(
                      worker_.args.cells, at, [&](int) { return tag; }, values) &&
                  are_there;
      WEFT_UNROLL
      for (int i = 0; i < kAtOnce; ++i) WEFT_UNROLL
      for (int e = 0; e < 2; ++e)
        if (first + i < kLoads) sums[(first + i) / kOfHalf][e] += values[i][e];
    }
    return are_there;
  }
  // Where piece `piece` of a column's band lies in a panel; -1: it has fewer there.
  template <class M>
  WEFT_INLINE int place(int row, int column, int panel, int piece) const {
    const u16* const first = worker_.template first_slots<M>() + panel * M::kBands + column / 16;
    const int slot = first[0] + piece;
    return slot < first[1] ? static_cast<int>(M::kCells) + (slot * Shape::kSizes.rows + row) * 16 + column % 16 : -1;
  }

  WEFT_INLINE static void add_bias(const float* bias, int column, float (&sums)[2]) {
    WEFT_UNROLL
    for (int e = 0; e < 2; ++e)
      if (bias != nullptr && column >= 0) sums[e] += bias[column + e];
  }

  // What is added to the residual: the residual times norm, and its squares, are left.
  WEFT_INLINE void leave(int row, int pair, int column, const float (&sums)[2], const float* norm, u32 tag) const {
    const OwnColumns own = this->own();
    float r[2] = {};
    u32 bits = 0;
    if (column >= 0) {
      float* const residual = worker_.residual(row) + 2 * pair;
      WEFT_UNROLL
      for (int e = 0; e < 2; ++e) residual[e] = r[e] = residual[e] + sums[e];
      bits = tile::pack<bf16>(r[0] * norm[column], r[1] * norm[column + 1]);
    }
    if (pair < own.count / 2)
      tile::TaggedEdge::write_bits(worker_.args.cells + Shape::kNormed +
                                       static_cast<i64>(row) * row_pairs(Shape::kHidden) + own.first / 2 + pair,
                                   bits, tag);
    leave_squares(Shape::kNormed + static_cast<i64>(Shape::kSizes.rows) * row_pairs(Shape::kHidden), row, pair, r, tag);
  }

  // Of each eight lanes, which have a cell.
  WEFT_INLINE void leave_squares(i64 cells, int row, int pair, const float (&x)[2], u32 tag) const {
    constexpr int kCells = cells_of(Shape::kHidden);
    const OwnColumns own = this->own();
    const float squares = tile::lane_sum<8>(x[0] * x[0] + x[1] * x[1]);
    if (pair % 8 != 0 || pair >= own.count / 2) return;
    const int cell = (own.first / 2 + pair) / 8;
    auto* const to = worker_.args.cells + cells + static_cast<i64>(row) * row_squares(Shape::kHidden) + cell;
    tile::TaggedEdge::write(to, squares, tag);
    if (kCells % 2 == 1 && cell + 1 == kCells) tile::TaggedEdge::write(to + 1, 0.f, tag);
  }

  // 1 / rms of a row of sums, by the squares that all owners have left.
  WEFT_INLINE bool factor_of_sums(int row, u32 tag, float& factor) const {
    constexpr int kPairs = row_squares(Shape::kHidden) / 2, kAtOnce = 4;
    bool are_there = true;
    float sum = 0;
    WEFT_NO_UNROLL
    for (int first = ptx::lane(); first < kPairs; first += 32 * kAtOnce) {
      float values[kAtOnce][2];
      const auto at = [&](int i) {
        const int pair = first + 32 * i;
        return pair < kPairs ? static_cast<int>(Shape::kSquares) + row * row_squares(Shape::kHidden) + 2 * pair : -1;
      };
      are_there = worker_.edge().template read_where<kAtOnce>(
                      worker_.args.cells, at, [&](int) { return tag; }, values) &&
                  are_there;
      WEFT_UNROLL
      for (int i = 0; i < kAtOnce; ++i) sum += values[i][0] + values[i][1];
    }
    factor = 1.f / ptx::square_root(tile::lane_sum(sum) / static_cast<float>(Shape::kHidden) + Shape::kNormEps);
    return are_there;
  }

  const Worker<Shape> worker_;
};
#endif

}  // namespace weft::decode::fused
