// The products of a warp: scores = q k of its rows and a step of keys, o += p v. What is multiplied next is loaded
// before what is there is multiplied.
#pragma once

#include "attention/cuda/kernels/mma/logits.h"
#include "attention/cuda/kernels/mma/states.h"

namespace weft::attention::cuda::mma {

// A warp's queries: in registers where these have room, else read from shared memory for each step of keys.
template <class Shape>
class Queries {
  static constexpr int kFragments = Shape::kFragments, kSteps = Shape::kPadQk / 16;
  static constexpr bool kKept = Shape::kKeepsQueries;

 public:
  // Once they have come to shared memory.
  WEFT_INLINE void keep(const Thread<Shape>& thread) {
    if constexpr (kKept) WEFT_UNROLL
    for (int k = 0; k < kSteps; ++k) load(kept_[k], rows(thread), k);
  }

  // By kStepKeys keys of a stage, from `key` on.
  WEFT_INLINE void multiply(const Thread<Shape>& thread, int stage, int key, typename Shape::Scores& s) const {
    constexpr int kColumns = Shape::kStepKeys / 16, kProducts = kSteps * kColumns;
    const auto keys = Shape::KeyRows::of_b({Shape::keys_of(stage).data + key * Shape::kPadQk * 2}, thread.lane);
    const auto of_queries = rows(thread);
    u32 a[2][kFragments][4], b[2][4];
    if constexpr (!kKept) load(a[0], of_queries, 0);
    tile::load(b[0], keys, 0, 0);
    WEFT_UNROLL
    for (int i = 0; i < kProducts; ++i) {
      const int k = i / kColumns, column = i % kColumns, next = i + 1;
      if (next < kProducts) tile::load(b[next % 2], keys, next % kColumns * 16, next / kColumns * 16);
      if (!kKept && column == 0 && k + 1 < kSteps) load(a[(k + 1) % 2], of_queries, k + 1);
      WEFT_UNROLL
      for (int m = 0; m < kFragments; ++m) {
        const auto& of_query = kKept ? kept_[kKept ? k : 0] : a[k % 2];
        tile::multiply<typename Shape::T>(s[m][2 * column], of_query[m], b[i % 2][0], b[i % 2][1]);
        tile::multiply<typename Shape::T>(s[m][2 * column + 1], of_query[m], b[i % 2][2], b[i % 2][3]);
      }
    }
  }

 private:
  WEFT_INLINE static typename Shape::KeyRows rows(const Thread<Shape>& thread) {
    return Shape::KeyRows::of_a({Shape::queries().data + thread.first_row() * Shape::kPadQk * 2}, thread.lane);
  }
  WEFT_INLINE static void load(u32 (&a)[kFragments][4], const typename Shape::KeyRows& from, int k) {
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) tile::load(a[m], from, 16 * m, 16 * k);
  }

  u32 kept_[kKept ? kSteps : 1][kFragments][4];
};

// o += p v, of kStepKeys values of a stage, from `key` on. Two fragments of a product are the halves of the next one's
// left operand.
template <class Shape>
WEFT_INLINE void multiply_values(const Thread<Shape>& thread, int stage, int key, const typename Shape::Scores& s,
                                 States<Shape>& states) {
  using T = typename Shape::T;
  constexpr int kColumns = Shape::kPadVo / 16, kProducts = Shape::kStepKeys / 16 * kColumns;
  const auto values =
      Shape::ValueRows::of_b_rows({Shape::values_of(stage).data + key * Shape::kPadVo * 2}, thread.lane);
  u32 p[Shape::kFragments][4], b[2][4];
  tile::load_transposed(b[0], values, 0, 0);
  WEFT_UNROLL
  for (int i = 0; i < kProducts; ++i) {
    const int k = i / kColumns, column = i % kColumns, next = i + 1;
    if (next < kProducts) tile::load_transposed(b[next % 2], values, next / kColumns * 16, next % kColumns * 16);
    WEFT_UNROLL
    for (int m = 0; m < Shape::kFragments; ++m) {
      if (column == 0) WEFT_UNROLL
      for (int e = 0; e < 4; ++e)
        p[m][e] = tile::pack<T>(s[m][2 * k + e / 2][e % 2 * 2], s[m][2 * k + e / 2][e % 2 * 2 + 1]);
      tile::multiply<T>(states.o[m][2 * column], p[m], b[i % 2][0], b[i % 2][1]);
      tile::multiply<T>(states.o[m][2 * column + 1], p[m], b[i % 2][2], b[i % 2][3]);
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
      typename Shape::Scores scores = {};
      queries_.multiply(thread, stage, key, scores);
      Logits<Shape>(rows, thread, tile).make(key, scores);
      if constexpr (Shape::F::kSoftmax) states.to_probabilities(scores, rows.scale() * tile::kLog2E);
      multiply_values(thread, stage, key, scores, states);
    }
  }

 private:
  Queries<Shape> queries_;
};

}  // namespace weft::attention::cuda::mma
