// What a worker's product multiplies: rows in bf16 that owners of columns have left (reductions.h, merge.h), or the
// embedding, which every worker gathers itself.
#pragma once

#include "decode/fused/cuda/kernels/product.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/reduce.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
// Loads that a thread has on their way, of 16 bytes: a trip to another worker's numbers takes a microsecond, however
// many there are.
inline constexpr int kMostLoads = 8;

// Columns [first, first + count) of so many, in cells of 16: those that the worker owns.
struct OwnColumns {
  int first, count;
  template <class Shape>
  WEFT_INLINE OwnColumns(const Worker<Shape>& worker, int cols)
      : first(16 * worker.share_of(cells_of(cols))), count(16 * worker.share_of(cells_of(cols), 1) - first) {}
};

template <class Shape>
class Inputs {
 public:
  WEFT_INLINE explicit Inputs(const Worker<Shape>& worker) : worker_(worker) {}

  // What each makes is there for all threads behind a barrier. False: what it is made of did not come.

  // x = the worker's panel of rows that lie at of.from, written by phase `tag`; and their squares, which lie behind
  // them. A worker without tiles reads nothing: nobody would wait until it has.
  WEFT_INLINE bool rows(const Product& of, u32 tag) const {
    const Share<Shape> share(worker_, of);
    if (share.tiles.size() == 0) return true;
    const int cells = static_cast<int>(of.from), squares = cells + Shape::kSizes.rows * 2 * of.row_quads;
    const int first_quad = share.panel * (of.loads - of.squares);
    const int count = worker_.args.rows * of.loads;
    WEFT_NO_UNROLL
    for (int first = worker_.thread; first < count; first += kMostLoads * kConsumers) {
      const auto row_of = [&](int load) { return Shape::kSizes.rows > 1 ? load / of.loads : 0; };
      const auto at = [&](int i) {
        const int load = first + i * kConsumers, row = row_of(load), in_row = load - row * of.loads;
        if (load >= count) return -1;
        if (in_row < of.squares) return squares + row * 2 * of.squares + 2 * in_row;
        const int quad = first_quad + in_row - of.squares;
        return quad < of.row_quads ? cells + row * 2 * of.row_quads + 2 * quad : -1;
      };
      u32 bits[kMostLoads][2];
      if (!worker_.edge().template read_bits<kMostLoads>(
              worker_.args.cells, at, [&](int) { return tag; }, bits))
        return false;
      WEFT_UNROLL
      for (int i = 0; i < kMostLoads; ++i) {
        const int load = first + i * kConsumers, row = row_of(load), in_row = load - row * of.loads;
        if (at(i) < 0) continue;
        if (in_row < of.squares)
          worker_.squares(row)[in_row] = ptx::from_bits(bits[i][0]) + ptx::from_bits(bits[i][1]);
        else
          reinterpret_cast<tile::Bytes8*>(worker_.x(row))[in_row - of.squares] = {{bits[i][0], bits[i][1]}};
      }
    }
    return true;
  }

  // x = the embedding of the rows' tokens times norm, and its squares. The worker keeps its own columns.
  template <class E>
  WEFT_INLINE void embedded(const Product& of, float scale, const float* norm) const {
    constexpr int kPairs = Shape::kHidden / 2;
    const OwnColumns own(worker_, Shape::kHidden);
    const int panel_cols = 4 * (of.loads - of.squares);
    const int first_column = Share<Shape>(worker_, of).panel * panel_cols;
    WEFT_NO_UNROLL
    for (int row = 0; row < worker_.args.rows; ++row) {
      const int token = worker_.args.tokens[row];
      WEFT_NO_UNROLL
      for (int first = 0; first < kPairs; first += kConsumers) {
        const int pair = first + worker_.thread, column = 2 * pair;
        float r[2] = {};
        if (pair < kPairs) {
          embedded_pair<E>(token, column, scale, r);
          const int in_panel = column - first_column;
          if (in_panel >= 0 && in_panel < panel_cols)
            reinterpret_cast<u32*>(worker_.x(row))[in_panel / 2] =
                tile::pack<bf16>(r[0] * norm[column], r[1] * norm[column + 1]);
          if (column >= own.first && column < own.first + own.count)
            *reinterpret_cast<tile::Floats2*>(worker_.residual(row) + column - own.first) = {{r[0], r[1]}};
        }
        const float squares = tile::lane_sum<16>(r[0] * r[0] + r[1] * r[1]);
        if (pair % 16 == 0 && pair < kPairs) worker_.squares(row)[pair / 16] = squares;
      }
    }
  }

  // 1 / rms of a row whose squares all have left, by a warp.
  WEFT_INLINE float norm_factor(int row) const {
    constexpr int kSquares = (Shape::kHidden + 31) / 32;
    float sum = 0;
    for (int i = ptx::lane(); i < kSquares; i += 32) sum += worker_.squares(row)[i];
    return 1.f / ptx::square_root(tile::lane_sum(sum) / static_cast<float>(Shape::kHidden) + Shape::kNormEps);
  }

 private:
  template <class E>
  WEFT_INLINE void embedded_pair(int token, int column, float scale, float (&r)[2]) const {
    const u8* const tiles = worker_.args.weights + worker_.args.embedding;
    const i64 piece = static_cast<i64>(token / 16) * E::kBandPieces + column / E::Weights::kCols;
    float four[4];
    tile::row_values<typename E::Weights>(tiles + piece * E::Weights::kBytes, token % 16, column / 4 * 4, four);
    WEFT_UNROLL
    for (int e = 0; e < 2; ++e) r[e] = scale * (column % 4 == 0 ? four[e] : four[2 + e]);
  }

  const Worker<Shape> worker_;
};
#endif

}  // namespace weft::decode::fused
