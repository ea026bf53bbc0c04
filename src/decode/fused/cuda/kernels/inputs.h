// What a worker's product multiplies, made of what all workers have left: every worker makes the same of it, each for
// its own columns.
#pragma once

#include "decode/fused/cuda/kernels/product.h"
#include "ops/cuda/kernels/gates.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/reduce.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
// Loads that a thread has on their way, of 16 bytes. With more of them its registers do not hold, and what it keeps in
// memory instead costs more than they save.
inline constexpr int kMostLoads = 4;
constexpr int batch_of(int loads_of_pair) { return loads_of_pair < kMostLoads ? kMostLoads / loads_of_pair : 1; }

// Sums of a product that workers have left, of pairs of neighbouring columns: the first piece of each panel, then what
// cut bands have beside, always in this order.
template <class M, class Shape>
struct Sums {
  static constexpr int kRows = Shape::kSizes.rows, kFirst = M::kPanels;  // loads of a pair, beside those of cut bands
  const Worker<Shape>& worker;
  u32 tag;

  // Where piece `piece` of a panel lies; -1: the band has fewer there.
  WEFT_INLINE int place(int row, int column, int panel, int piece) const {
    const u16* const first = worker.template first_slots<M>() + panel * M::kBands + column / 16;
    const int slot = first[0] + piece;
    return piece == 0 || slot < first[1] ? static_cast<int>(M::kCells) + (slot * kRows + row) * 16 + column % 16 : -1;
  }
  // Beside each pair, what lies at `extra` of the cells, written by phase extra_tag; extra(b) < 0: nothing is read.
  // column_of(b): even, -1: none. False: they did not come.
  template <int kBatch, bool kHasExtra, class ColumnOf, class Extra>
  WEFT_INLINE bool load(int row, const ColumnOf& column_of, const Extra& extra, u32 extra_tag, float (&sums)[kBatch][2],
                        float (&extras)[kBatch][2]) const {
    constexpr int kLoads = kFirst + (kHasExtra ? 1 : 0), kCount = kBatch * kLoads;
    float values[kCount][2];
    bool are_there = worker.edge().template read_where<kCount>(
        worker.args.cells,
        [&](int i) {
          const int of = i / kLoads, panel = i % kLoads, column = column_of(of);
          if (column < 0) return -1;
          return panel == kFirst ? extra(of) : place(row, column, panel, 0);
        },
        [&](int i) { return i % kLoads == kFirst ? extra_tag : tag; }, values);
    WEFT_UNROLL
    for (int b = 0; b < kBatch; ++b) WEFT_UNROLL
    for (int e = 0; e < 2; ++e) {
      sums[b][e] = values[b * kLoads][e];
      WEFT_UNROLL
      for (int panel = 1; panel < kFirst; ++panel) sums[b][e] += values[b * kLoads + panel][e];
      if constexpr (kHasExtra) extras[b][e] = values[b * kLoads + kFirst][e];
    }
    WEFT_UNROLL
    for (int piece = 1; piece < M::kPieces; ++piece) {
      bool has_more = false;
      WEFT_UNROLL
      for (int b = 0; b < kBatch; ++b) WEFT_UNROLL
      for (int panel = 0; panel < kFirst; ++panel)
        has_more = has_more || (column_of(b) >= 0 && place(row, column_of(b), panel, piece) >= 0);
      if (!has_more) break;
      float more[kBatch * kFirst][2];
      are_there = worker.edge().template read_where<kBatch * kFirst>(
                      worker.args.cells,
                      [&](int i) {
                        const int column = column_of(i / kFirst);
                        return column < 0 ? -1 : place(row, column, i % kFirst, piece);
                      },
                      [&](int) { return tag; }, more) &&
                  are_there;
      WEFT_UNROLL
      for (int i = 0; i < kBatch * kFirst; ++i) WEFT_UNROLL
      for (int e = 0; e < 2; ++e) sums[i / kFirst][e] += more[i][e];
    }
    return are_there;
  }
  template <int kBatch, class ColumnOf>
  WEFT_INLINE bool load(int row, const ColumnOf& column_of, float (&sums)[kBatch][2]) const {
    return load<kBatch, false>(
        row, column_of, [](int) { return -1; }, 0, sums, sums);
  }
};

// A row's residual that is the last one and what a product left, [+ bias], [normed].
template <class M, bool kHasBias, bool kHasPostNorm>
struct AddedSums {
  using Product = M;
  static constexpr bool kIsNormed = kHasPostNorm;
  static constexpr int kLoads = 1 + M::kPanels;
  i64 residual;                // where the last one lies in ModelArgs::cells, unless workers keep it
  u32 residual_tag, sums_tag;  // phases that have written them
  const float *bias, *post_norm;

  // Pairs of columns, -1: none. False: they did not come.
  template <int kBatch, class Shape>
  WEFT_INLINE bool load(const Worker<Shape>& worker, int row, const int (&column)[kBatch], float factor,
                        float (&r)[kBatch][2]) const {
    const Sums<M, Shape> of{worker, sums_tag};
    float sums[kBatch][2];
    const bool are_there = of.template load<kBatch, !Shape::kKeepsResidual>(
        row, [&](int b) { return column[b]; },
        [&](int b) {
          return static_cast<int>(residual) + (column[b] / 16 * Shape::kSizes.rows + row) * 16 + column[b] % 16;
        },
        residual_tag, sums, r);
    WEFT_UNROLL
    for (int b = 0; b < kBatch; ++b) {
      if (column[b] < 0) continue;
      WEFT_UNROLL
      for (int e = 0; e < 2; ++e) {
        if constexpr (kHasBias) sums[b][e] += bias[column[b] + e];
        if constexpr (kHasPostNorm) sums[b][e] *= factor * post_norm[column[b] + e];
        r[b][e] = (Shape::kKeepsResidual ? worker.residual(row)[column[b] + e] : r[b][e]) + sums[b][e];
      }
    }
    return are_there;
  }
};

// A row's residual that is the embedding of its token.
template <class E>
struct Embedded {
  static constexpr bool kIsNormed = false;
  static constexpr int kLoads = 1;
  float scale;

  template <int kBatch, class Shape>
  WEFT_INLINE bool load(const Worker<Shape>& worker, int row, const int (&column)[kBatch], float,
                        float (&r)[kBatch][2]) const {
    const u8* const tiles = worker.args.weights + worker.args.embedding;
    const int token = worker.args.tokens[row];
    WEFT_UNROLL
    for (int b = 0; b < kBatch; ++b) {
      if (column[b] < 0) continue;
      const i64 piece = static_cast<i64>(token / 16) * E::kBandPieces + column[b] / E::Weights::kCols;
      float four[4];
      tile::row_values<typename E::Weights>(tiles + piece * E::Weights::kBytes, token % 16, column[b] / 4 * 4, four);
      WEFT_UNROLL
      for (int e = 0; e < 2; ++e) r[b][e] = scale * (column[b] % 4 == 0 ? four[e] : four[2 + e]);
    }
    return true;
  }
};

template <class Shape>
class Inputs {
 public:
  WEFT_INLINE explicit Inputs(const Worker<Shape>& worker) : worker_(worker) {}

  // What each makes is there for all threads behind a barrier. False: what it is made of did not come.

  // x = r * norm, its columns of the worker's panel, and the squares of r: sums are multiplied by the norm's factor
  // behind the product. Unless workers keep r, and where it is for others, the worker's part of it goes to `residual`,
  // as it is made: before all is there that it is made of.
  template <class M, bool kIsForOthers, class From>
  WEFT_INLINE bool normed(const From& from, const float* norm, i64 residual, int phase) const {
    constexpr int kPairs = Shape::kHidden / 2, kBatch = batch_of(From::kLoads);
    const ModelArgs& args = worker_.args;
    constexpr int kCells = (Shape::kHidden + 15) / 16, kTiles = M::kPanels * M::kPanelTiles;
    constexpr bool kWrites = kIsForOthers && !Shape::kKeepsResidual;
    const int* const tiles = worker_.template tiles<M>();
    const int owned = kWrites ? static_cast<int>(residual_begin(kCells, tiles[0], kTiles)) : 0;
    const int owned_end = kWrites ? static_cast<int>(residual_begin(kCells, tiles[1], kTiles)) : 0;
    const int first_column = Share<M, Shape>(args, worker_.worker).panel * M::kPanelCols;
    WEFT_NO_UNROLL
    for (int row = 0; row < args.rows; ++row) {
      float factor = 1.f;
      if constexpr (From::kIsNormed) factor = worker_.factor(row);
      float squares = 0;
      WEFT_NO_UNROLL
      for (int first = worker_.thread; first < kPairs; first += kBatch * kConsumers) {
        int column[kBatch];
        float r[kBatch][2];
        WEFT_UNROLL
        for (int b = 0; b < kBatch; ++b) {
          const int pair = first + b * kConsumers;
          column[b] = pair < kPairs ? 2 * pair : -1;
        }
        if (!from.load(worker_, row, column, factor, r)) return false;
        WEFT_UNROLL
        for (int b = 0; b < kBatch; ++b) {
          if (column[b] < 0) continue;
          squares += r[b][0] * r[b][0] + r[b][1] * r[b][1];
          if constexpr (Shape::kKeepsResidual) {
            *reinterpret_cast<tile::Floats2*>(worker_.residual(row) + column[b]) = {{r[b][0], r[b][1]}};
          } else if (const int cell = column[b] / 16; kWrites && cell >= owned && cell < owned_end) {
            tile::TaggedEdge::write(args.cells + residual + (cell * kRows + row) * 16 + column[b] % 16, r[b],
                                    worker_.tag_of(phase));
          }
          put<M>(row, column[b] - first_column, r[b][0] * norm[column[b]], r[b][1] * norm[column[b] + 1]);
        }
      }
      squares = tile::lane_sum(squares);
      if (ptx::lane() == 0) worker_.squares(row)[worker_.thread / 32] = squares;
    }
    return true;
  }

  // Of the norm whose squares all have left: 1 / rms.
  WEFT_INLINE float norm_factor(int row) const {
    float sum = 0;
    for (int warp = 0; warp < kConsumerWarps; ++warp) sum += worker_.squares(row)[warp];
    return 1.f / ptx::square_root(sum / static_cast<float>(Shape::kHidden) + Shape::kNormEps);
  }

  // The squares of what a product left, for the norm of it.
  template <class From>
  WEFT_INLINE bool squares_of_sums(const From& from) const {
    using M = typename From::Product;
    constexpr int kPairs = Shape::kHidden / 2, kBatch = batch_of(M::kPanels);
    const Sums<M, Shape> of{worker_, from.sums_tag};
    WEFT_NO_UNROLL
    for (int row = 0; row < worker_.args.rows; ++row) {
      float squares = 0;
      WEFT_NO_UNROLL
      for (int first = worker_.thread; first < kPairs; first += kBatch * kConsumers) {
        float sums[kBatch][2];
        const auto column_of = [&](int b) {
          const int pair = first + b * kConsumers;
          return pair < kPairs ? 2 * pair : -1;
        };
        if (!of.template load<kBatch>(row, column_of, sums)) return false;
        WEFT_UNROLL
        for (int b = 0; b < kBatch; ++b) {
          if (column_of(b) < 0) continue;
          WEFT_UNROLL
          for (int e = 0; e < 2; ++e) {
            const float bias = from.bias != nullptr ? from.bias[column_of(b) + e] : 0.f;
            squares += (sums[b][e] + bias) * (sums[b][e] + bias);
          }
        }
      }
      squares = tile::lane_sum(squares);
      if (ptx::lane() == 0) worker_.squares(row)[worker_.thread / 32] = squares;
    }
    return true;
  }

  // x = what attention gave.
  template <class M>
  WEFT_INLINE bool attended(i64 cells, u32 tag) const {
    constexpr int kPairs = M::kPanelCols / 2, kBatch = kMostLoads;
    const int first_column = Share<M, Shape>(worker_.args, worker_.worker).panel * M::kPanelCols;
    WEFT_NO_UNROLL
    for (int row = 0; row < worker_.args.rows; ++row) WEFT_NO_UNROLL
    for (int first = worker_.thread; first < kPairs; first += kBatch * kConsumers) {
      int at[kBatch];
      float values[kBatch][2];
      WEFT_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        const int pair = first + b * kConsumers, column = first_column + 2 * pair;
        at[b] = pair < kPairs && column < M::kCols
                    ? static_cast<int>(cells) + (column / 16 * kRows + row) * 16 + column % 16
                    : -1;
      }
      if (!worker_.edge().read(worker_.args.cells, at, tag, values)) return false;
      WEFT_UNROLL
      for (int b = 0; b < kBatch; ++b)
        if (at[b] >= 0) put<M>(row, 2 * (first + b * kConsumers), values[b][0], values[b][1]);
    }
    return true;
  }

  // x = gate(gate) * up, of the sums of both.
  template <class M, class GateUp>
  WEFT_INLINE bool gated(u32 tag) const {
    constexpr int kPairs = M::kPanelCols / 2, kBatch = batch_of(2 * GateUp::kPanels), kHalf = GateUp::kRows / 2;
    const Sums<GateUp, Shape> of{worker_, tag};
    const int first_column = Share<M, Shape>(worker_.args, worker_.worker).panel * M::kPanelCols;
    WEFT_NO_UNROLL
    for (int row = 0; row < worker_.args.rows; ++row) WEFT_NO_UNROLL
    for (int first = worker_.thread; first < kPairs; first += kBatch * kConsumers) {
      float sums[2 * kBatch][2];
      const auto column_of = [&](int b) {  // of both by turns
        const int pair = first + b / 2 * kConsumers, column = first_column + 2 * pair;
        return pair < kPairs && column < M::kCols ? column + b % 2 * kHalf : -1;
      };
      if (!of.template load<2 * kBatch>(row, column_of, sums)) return false;
      WEFT_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        if (column_of(2 * b) < 0) continue;
        put<M>(row, 2 * (first + b * kConsumers), ops::gate_of(sums[2 * b][0], Shape::kIsGelu) * sums[2 * b + 1][0],
               ops::gate_of(sums[2 * b][1], Shape::kIsGelu) * sums[2 * b + 1][1]);
      }
    }
    return true;
  }

 private:
  static constexpr int kRows = Shape::kSizes.rows;

  // A pair of columns of the worker's panel, if it lies there.
  template <class M>
  WEFT_INLINE void put(int row, int column, float low, float high) const {
    if (column >= 0 && column < M::kPanelCols)
      reinterpret_cast<u32*>(worker_.x(row))[column / 2] = tile::pack<bf16>(low, high);
  }

  const Worker<Shape> worker_;
};
#endif

}  // namespace weft::decode::fused
