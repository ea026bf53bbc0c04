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

  // x = the worker's panel of rows that lie at `cells`, written by phase `tag`; and their squares, which lie behind
  // them. A worker without tiles reads nothing: nobody would wait until it has.
  template <class M, bool kIsNormed>
  WEFT_INLINE bool rows(i64 cells, u32 tag) const {
    constexpr int kQuads = M::kPanelCols / 4, kRowQuads = row_pairs(M::kCols) / 2;
    constexpr int kSquares = kIsNormed ? row_squares(M::kCols) / 2 : 0, kOfRow = kSquares + kQuads;  // loads
    const i64 squares = cells + static_cast<i64>(Shape::kSizes.rows) * row_pairs(M::kCols);
    const Share<M, Shape> share(worker_.args, worker_.worker);
    if (share.tiles.size() == 0) return true;
    const int first_quad = share.panel * kQuads;
    const int count = worker_.args.rows * kOfRow;
    WEFT_NO_UNROLL
    for (int first = worker_.thread; first < count; first += kMostLoads * kConsumers) {
      const auto at = [&](int i) {
        const int load = first + i * kConsumers, row = load / kOfRow, in_row = load % kOfRow;
        if (load >= count) return -1;
        if (in_row < kSquares) return static_cast<int>(squares) + row * row_squares(M::kCols) + 2 * in_row;
        const int quad = first_quad + in_row - kSquares;
        return quad < kRowQuads ? static_cast<int>(cells) + row * row_pairs(M::kCols) + 2 * quad : -1;
      };
      u32 bits[kMostLoads][2];
      if (!worker_.edge().template read_bits<kMostLoads>(
              worker_.args.cells, at, [&](int) { return tag; }, bits))
        return false;
      WEFT_UNROLL
      for (int i = 0; i < kMostLoads; ++i) {
        const int load = first + i * kConsumers, row = load / kOfRow, in_row = load % kOfRow;
        if (at(i) < 0) continue;
        if (in_row < kSquares)
          worker_.squares(row)[in_row] = ptx::from_bits(bits[i][0]) + ptx::from_bits(bits[i][1]);
        else
          reinterpret_cast<tile::Bytes8*>(worker_.x(row))[in_row - kSquares] = {{bits[i][0], bits[i][1]}};
      }
    }
    return true;
  }

  // x = the embedding of the rows' tokens times norm, and its squares. The worker keeps its own columns.
  template <class M, class E>
  WEFT_INLINE void embedded(float scale, const float* norm) const {
    constexpr int kPairs = Shape::kHidden / 2;
    const OwnColumns own(worker_, Shape::kHidden);
    const int first_column = Share<M, Shape>(worker_.args, worker_.worker).panel * M::kPanelCols;
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
          if (in_panel >= 0 && in_panel < M::kPanelCols)
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
