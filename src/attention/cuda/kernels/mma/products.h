// The products of a warp: scores = q k of its rows and a step of keys, o += p v. What is multiplied next is loaded
// before what is there is multiplied.
#pragma once

#include "attention/cuda/kernels/mma/few_bit_queries.h"
#include "attention/cuda/kernels/mma/logits.h"
#include "attention/cuda/kernels/mma/special_keys.h"
#include "attention/cuda/kernels/mma/states.h"

namespace weft::attention::cuda::mma {

// A warp's queries: in registers where these have room, else read from shared memory for each step of keys.
template <class Shape>
class Queries {
  // 16 elements each, of 32 bytes of a row of keys. Queries that do not stay are loaded for the next 32 bytes ahead of
  // these, where that takes few registers.
  static constexpr int kFragments = Shape::kFragments, kSteps = Shape::kPiece / 16, kAhead = Shape::kFewBits ? 1 : 2;
  static constexpr bool kKept = Shape::kKeepsQueries;

 public:
  // Once they have come to shared memory.
  WEFT_INLINE void keep(const Thread<Shape>& thread) {
    if constexpr (kKept) WEFT_UNROLL
    for (int piece = 0; piece < Shape::kKeyHalves / 16; ++piece) load(kept_[piece], rows(thread), piece);
    if constexpr (kKept && Shape::kFewBits) WEFT_UNROLL
    for (int i = 0; i < 2 * kFragments; ++i) {
      starts_[i] = FewBitQueries<Shape>::start(thread.row(i / 2, i % 2));
      factors_[i] = FewBitQueries<Shape>::factor(thread.row(i / 2, i % 2));
    }
  }

  // By kStepKeys keys of a stage, from `key` on.
  WEFT_INLINE void multiply(const Thread<Shape>& thread, int stage, int key, typename Shape::Scores& s) const {
    constexpr int kColumns = Shape::kStepKeys / 16, kPieces = Shape::kKeyHalves / 16;
    const auto keys =
        Shape::KeyRows::of_b({Shape::keys_of(stage).data + key * Shape::KeyTile::Type::kRowBytes}, thread.lane);
    const auto of_queries = rows(thread);
    start(thread, s);
    u32 a[kAhead][kSteps][kFragments][4], b[2][4];
    if constexpr (!kKept) load(a[0], of_queries, 0);
    tile::load(b[0], keys, 0, 0);
    WEFT_UNROLL
    for (int i = 0; i < kPieces * kColumns; ++i) {
      const int piece = i / kColumns, column = i % kColumns, next = i + 1;
      if (next < kPieces * kColumns) tile::load(b[next % 2], keys, next % kColumns * 16, next / kColumns * 16);
      if (!kKept && column == 0) {
        if (kAhead == 1 && piece > 0) load(a[0], of_queries, piece);
        if (kAhead == 2 && piece + 1 < kPieces) load(a[(piece + 1) % kAhead], of_queries, piece + 1);
      }
      u32 first[2 * kSteps], second[2 * kSteps];  // of 8 keys each
      unpack_two(b[i % 2][0], b[i % 2][1], first);
      unpack_two(b[i % 2][2], b[i % 2][3], second);
      WEFT_UNROLL
      for (int step = 0; step < kSteps; ++step) WEFT_UNROLL
      for (int m = 0; m < kFragments; ++m) {
        const auto& of_query = kKept ? kept_[kKept ? piece : 0][step] : a[piece % kAhead][step];
        using Product = typename Shape::Product;
        tile::multiply<Product>(s[m][2 * column], of_query[m], first[2 * step], first[2 * step + 1]);
        tile::multiply<Product>(s[m][2 * column + 1], of_query[m], second[2 * step], second[2 * step + 1]);
      }
    }
  }
  // Scores by what rows of queries were divided by.
  WEFT_INLINE void scale(const Thread<Shape>& thread, typename Shape::Scores& s) const {
    if constexpr (Shape::kFewBits) WEFT_UNROLL
    for (int i = 0; i < 2 * kFragments; ++i) {
      const float factor = kKept ? factors_[i] : FewBitQueries<Shape>::factor(thread.row(i / 2, i % 2));
      WEFT_UNROLL
      for (int f = 0; f < Shape::kStepKeys / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e) s[i / 2][f][i % 2 * 2 + e] *= factor;
    }
  }

 private:
  WEFT_INLINE void start(const Thread<Shape>& thread, typename Shape::Scores& s) const {
    WEFT_UNROLL
    for (int i = 0; i < 2 * kFragments; ++i) {
      float start = 0;
      if constexpr (Shape::Halves::kOffset > 0)
        start = kKept ? starts_[i] : FewBitQueries<Shape>::start(thread.row(i / 2, i % 2));
      WEFT_UNROLL
      for (int f = 0; f < Shape::kStepKeys / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e) s[i / 2][f][i % 2 * 2 + e] = start;
    }
  }
  WEFT_INLINE static typename Shape::QueryRows rows(const Thread<Shape>& thread) {
    return Shape::QueryRows::of_a({Shape::queries().data + thread.first_row() * Shape::kPadQk * 2}, thread.lane);
  }
  WEFT_INLINE static void load(u32 (&a)[kSteps][kFragments][4], const typename Shape::QueryRows& from, int piece) {
    WEFT_UNROLL
    for (int step = 0; step < kSteps; ++step) WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) tile::load(a[step][m], from, 16 * m, 16 * (piece * kSteps + step));
  }
  WEFT_INLINE static void unpack_two(u32 low, u32 high, u32 (&pairs)[2 * kSteps]) {
    u32 of_low[kSteps], of_high[kSteps];
    Shape::Halves::of_row(low, of_low);
    Shape::Halves::of_row(high, of_high);
    WEFT_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      pairs[i] = of_low[i];
      pairs[kSteps + i] = of_high[i];
    }
  }

  u32 kept_[kKept ? Shape::kKeyHalves / 16 : 1][kSteps][kFragments][4];
  float starts_[2 * kFragments], factors_[2 * kFragments];  // of few bits
};

// o += p v, of kStepKeys values of a stage, from `key` on. Two fragments of a product are the halves of the next one's
// left operand.
template <class Shape>
WEFT_INLINE void multiply_values(const Thread<Shape>& thread, int stage, int key, const typename Shape::Scores& s,
                                 States<Shape>& states) {
  using Product = typename Shape::Product;
  using Halves = typename Shape::Halves;
  constexpr int kPairs = Halves::kPairs;
  constexpr int kPieces = Shape::kValueHalves / 16, kLoads = Shape::kStepKeys / 16 * kPieces;
  const auto values = Shape::ValueRows::of_b_rows(
      {Shape::values_of(stage).data + key * Shape::ValueTile::Type::kRowBytes}, thread.lane);
  u32 p[Shape::kFragments][4], b[2][4];
  tile::load_transposed(b[0], values, 0, 0);
  WEFT_UNROLL
  for (int i = 0; i < kLoads; ++i) {
    const int k = i / kPieces, piece = i % kPieces, next = i + 1;
    if (next < kLoads) tile::load_transposed(b[next % 2], values, next / kPieces * 16, next % kPieces * 16);
    if (piece == 0) WEFT_UNROLL
    for (int m = 0; m < Shape::kFragments; ++m) WEFT_UNROLL
    for (int e = 0; e < 4; ++e)
      p[m][e] = tile::pack<Product>(s[m][2 * k + e / 2][e % 2 * 2], s[m][2 * k + e / 2][e % 2 * 2 + 1]);
    if constexpr (Halves::kOffset > 0) {
      constexpr u32 kOffsets = tile::in_both(Halves::kOffset);
      if (piece == 0) WEFT_UNROLL
      for (int m = 0; m < Shape::kFragments; ++m) tile::multiply<Product>(states.offsets[m], p[m], kOffsets, kOffsets);
    }
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {  // 16 bytes of 16 rows
      u32 low[kPairs], high[kPairs];
      Halves::of_two_rows(b[i % 2][2 * half], low);
      Halves::of_two_rows(b[i % 2][2 * half + 1], high);
      WEFT_UNROLL
      for (int pair = 0; pair < kPairs; ++pair) WEFT_UNROLL
      for (int m = 0; m < Shape::kFragments; ++m)
        tile::multiply<Product>(states.o[m][(2 * piece + half) * kPairs + pair], p[m], low[pair], high[pair]);
    }
  }
}

// Both, and the softmax between them.
template <class Shape>
class WarpProducts {
 public:
  static constexpr bool kOverlapsTiles = false;
  WEFT_INLINE void keep_queries(const Thread<Shape>& thread) { queries_.keep(thread); }

  // A tile of keys and values that are there, as many keys at a time as a warp has registers for.
  WEFT_INLINE void multiply(const Rows<Shape>& rows, const Thread<Shape>& thread, int tile,
                            States<Shape>& states) const {
    const int stage = tile % Shape::kStages, begin = thread.warp_n() * Shape::kWarpKeys;
    WEFT_NO_UNROLL
    for (int key = begin; key < begin + Shape::kWarpKeys; key += Shape::kStepKeys) {
      typename Shape::Scores scores;
      queries_.multiply(thread, stage, key, scores);
      if constexpr (Shape::Halves::kLosesSpecials)
        if (Shape::shared().special_keys != 0) [[unlikely]]
          SpecialKeys<Shape>::multiply(thread, stage, key, scores);
      queries_.scale(thread, scores);
      Logits<Shape>(rows, thread, tile).make(key, scores);
      if constexpr (Shape::F::kSoftmax) states.to_probabilities(scores, rows.scale() * tile::kLog2E);
      if constexpr (Shape::kTokenScales)
        multiply_by_tokens<Shape>(thread, rows.token_scales(tile).of_value, key, scores);
      states.weigh(scores);
      multiply_values(thread, stage, key, scores, states);
    }
  }

 private:
  Queries<Shape> queries_;
};

}  // namespace weft::attention::cuda::mma
