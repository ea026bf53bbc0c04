// Heads of a step's rows, from the sums of the product that makes queries, keys and values: the pieces of each column
// in order, then bias, norm and rotation where the model has them.
//
// Lanes share a head by units of four columns. A unit has both columns of two pairs that turn, wherever these lie, so
// no lane needs what another has:
//
//   halves, pairs = 8, 24 columns:   unit 0: 0 1 8 9 | 1: 2 3 10 11 | 2: 4 5 12 13 | 3: 6 7 14 15 | ...
//   neighbours:                      unit 0: 0 1 2 3 | 1: 4 5 6 7 | ...
#pragma once

#include "decode/fused/cuda/kernels/attention_args.h"
#include "ops/cuda/kernels/gates.h"
#include "ops/cuda/kernels/rows.h"
#include "tile/cuda/edge.h"

namespace weft::decode::fused {

// One head of one row.
struct HeadOfRow {
  int row;            // of the step
  int column;         // of the product: its first one
  const float* norm;  // null: none
  bool turns;
  // The first slot of its first band, and how many slots lie from a panel to the next.
  const int* first_slot;
  int stride;
};

// Which columns of a head a lane has; a multiple of 16, up to 256.
template <int kDim>
struct HeadUnits {
  static_assert(kDim % 16 == 0 && kDim <= 256);
  static constexpr int kLanes = kDim <= 16 ? 4 : kDim <= 32 ? 8 : kDim <= 64 ? 16 : 32;  // that share a head
  static constexpr int kSide = 32 / kLanes;                                              // heads side by side
  static constexpr int kOfLane = (kDim / 4 + 31) / 32;

  // Of the lane's i-th unit.
  WEFT_INLINE static int unit(int i) { return ptx::lane() % kLanes + i * kLanes; }
  WEFT_INLINE static bool is_there(int i) { return kDim / 4 % kLanes == 0 || unit(i) < kDim / 4; }
  // The first of its two pairs of neighbours, or the second.
  WEFT_INLINE static int column(const HeadArgs& args, int i, int pair) {
    const int u = unit(i);
    return args.halves && u < args.pairs / 2 ? 2 * u + pair * args.pairs : 4 * u + 2 * pair;
  }
};

// Pieces of the sum of a head's column, panel by panel.
WEFT_INLINE int pieces_of(const HeadArgs& args, const HeadOfRow& of, int column) {
  int pieces = 0;
  for (int panel = 0; panel < args.panels; ++panel) {
    const int* const first = of.first_slot + panel * of.stride + column / 16;
    pieces += first[1] - first[0];
  }
  return pieces;
}
// The cell of one of them; -1: there are fewer.
WEFT_INLINE int cell_of(const HeadArgs& args, const HeadOfRow& of, int column, int piece) {
  for (int panel = 0; panel < args.panels; ++panel) {
    const int* const first = of.first_slot + panel * of.stride + column / 16;
    const int slot = first[0] + piece, pieces = first[1] - first[0];
    if (piece < pieces) return (slot * args.rows + of.row) * 16 + column % 16;
    piece -= pieces;
  }
  return -1;
}

// Vectors of a lane's part of a head, loaded before the warp waits for sums: memory is as far for them.
template <int kDim>
struct HeadNumbers {
  using Units = HeadUnits<kDim>;
  float bias[Units::kOfLane][4], norm[Units::kOfLane][4], cos[Units::kOfLane][2], sin[Units::kOfLane][2];

  WEFT_INLINE void load(const HeadArgs& args, const HeadOfRow& of) {
    WEFT_UNROLL
    for (int i = 0; i < Units::kOfLane; ++i) {
      const bool is_there = Units::is_there(i);
      const int u = Units::unit(i);
      WEFT_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        const int column = Units::column(args, i, pair);
        load_two(is_there ? args.bias : nullptr, of.column + column, 0.f, bias[i][2 * pair], bias[i][2 * pair + 1]);
        load_two(is_there ? of.norm : nullptr, column, 1.f, norm[i][2 * pair], norm[i][2 * pair + 1]);
      }
      const bool turns = of.turns && u < args.pairs / 2;
      load_two(turns ? args.cos : nullptr, of.row * args.pairs + 2 * u, 1.f, cos[i][0], cos[i][1]);
      load_two(turns ? args.sin : nullptr, of.row * args.pairs + 2 * u, 0.f, sin[i][0], sin[i][1]);
    }
  }

 private:
  WEFT_INLINE static void load_two(const float* from, int at, float without, float& a, float& b) {
    const tile::Floats2 loaded =
        from != nullptr ? *reinterpret_cast<const tile::Floats2*>(from + at) : tile::Floats2{{without, without}};
    a = loaded.x[0];
    b = loaded.x[1];
  }
};

// The norm of a head whose columns its lanes share; those that have none hold zeros. All lanes of the warp call.
template <int kDim>
WEFT_INLINE ops::NormFactors norm_of_head(const float (&x)[HeadUnits<kDim>::kOfLane][4], float eps) {
  constexpr int kUnits = HeadUnits<kDim>::kOfLane, kLanes = HeadUnits<kDim>::kLanes;
  float squares = 0, largest = 0;
  WEFT_UNROLL
  for (int i = 0; i < kUnits; ++i) WEFT_UNROLL
  for (int j = 0; j < 4; ++j) {
    squares += x[i][j] * x[i][j];
    largest = ptx::larger(largest, ptx::absolute(x[i][j]));
  }
  const float mean = tile::lane_sum<kLanes>(squares) / static_cast<float>(kDim) + eps;
  const bool is_usual = ops::is_usual(mean);
  if (ptx::ballot(!is_usual) == 0) return ops::usual_factors(mean);
  // Beside another head whose squares leave the range of floats: this one's bits stay what they are.
  largest = tile::lane_max<kLanes>(largest);
  const float unit = largest < 7.9e-31f ? 7.9e-31f : largest, before = 1.f / unit;
  squares = 0;
  WEFT_UNROLL
  for (int i = 0; i < kUnits; ++i) WEFT_UNROLL
  for (int j = 0; j < 4; ++j) squares += x[i][j] * before * (x[i][j] * before);
  const float relative = tile::lane_sum<kLanes>(squares) / static_cast<float>(kDim) + eps / unit / unit;
  if (is_usual) return ops::usual_factors(mean);
  return {before, 1.f / ptx::square_root(relative)};
}

// Sums of a lane's columns become the head. All lanes of the warp call.
template <int kDim>
WEFT_INLINE void finish_head(const HeadArgs& args, const HeadOfRow& of, const HeadNumbers<kDim>& numbers,
                             float (&x)[HeadUnits<kDim>::kOfLane][4]) {
  constexpr int kUnits = HeadUnits<kDim>::kOfLane;
  if (args.bias != nullptr) {
    WEFT_UNROLL
    for (int i = 0; i < kUnits; ++i) WEFT_UNROLL
    for (int j = 0; j < 4; ++j) x[i][j] += numbers.bias[i][j];
  }
  if (args.q_norm != nullptr || args.k_norm != nullptr) {
    const ops::NormFactors factors = norm_of_head<kDim>(x, args.eps);
    if (of.norm != nullptr) {
      WEFT_UNROLL
      for (int i = 0; i < kUnits; ++i) WEFT_UNROLL
      for (int j = 0; j < 4; ++j) x[i][j] = x[i][j] * factors.before * factors.after * numbers.norm[i][j];
    }
  }
  WEFT_UNROLL
  for (int i = 0; i < kUnits; ++i) {
    if (!of.turns || HeadUnits<kDim>::unit(i) >= args.pairs / 2) continue;
    const float *cos = numbers.cos[i], *sin = numbers.sin[i];
    if (args.halves) {
      ops::rotate(x[i][0], x[i][2], cos[0], sin[0]);
      ops::rotate(x[i][1], x[i][3], cos[1], sin[1]);
    } else {
      ops::rotate(x[i][0], x[i][1], cos[0], sin[0]);
      ops::rotate(x[i][2], x[i][3], cos[1], sin[1]);
    }
  }
}

// Heads [first, end), by a warp: those that its lanes have side by side, and again each `step` behind. head_of(i) says
// which, and write(i, column of the head, two neighbours) is called by the lane that has these. kPieces of each column
// are on their way at once. `sums`: cells [slot, row, 16]. False once the edge's limit has gone by; all lanes call.
template <int kDim, int kPieces, class Edge, class HeadOf, class Write>
WEFT_INLINE bool make_heads(const HeadArgs& args, const Edge& edge, const typename Edge::Cell* sums, u32 phase,
                            int first, int end, int step, const HeadOf& head_of, const Write& write) {
  using Units = HeadUnits<kDim>;
  constexpr int kPairs = 2 * Units::kOfLane, kLoads = kPairs * kPieces;  // of a head, in a lane
  WEFT_NO_UNROLL
  for (; first < end; first += step) {
    const int own = first + ptx::lane() / Units::kLanes, index = own < end ? own : first;
    const HeadOfRow of = head_of(index);
    int columns[kPairs], pieces = 0;
    WEFT_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      columns[p] = own < end && Units::is_there(p / 2) ? Units::column(args, p / 2, p % 2) : -1;
      const int of_column = columns[p] < 0 ? 0 : pieces_of(args, of, columns[p]);
      pieces = of_column > pieces ? of_column : pieces;
    }
    HeadNumbers<kDim> numbers;
    numbers.load(args, of);
    float x[Units::kOfLane][4] = {};
    bool are_there = true;
    WEFT_NO_UNROLL
    for (int piece = 0; piece < pieces && are_there; piece += kPieces) {
      int cells[kLoads];
      float values[kLoads][2];
      WEFT_UNROLL
      for (int i = 0; i < kLoads; ++i) {
        const int column = columns[i / kPieces];
        cells[i] = column < 0 ? -1 : cell_of(args, of, column, piece + i % kPieces);
      }
      are_there = edge.read(sums, cells, phase, values);
      if (!are_there) break;
      WEFT_UNROLL
      for (int i = 0; i < kLoads; ++i) WEFT_UNROLL
      for (int j = 0; j < 2; ++j) x[i / kPieces / 2][i / kPieces % 2 * 2 + j] += values[i][j];
    }
    if (ptx::ballot(!are_there) != 0) return false;
    finish_head<kDim>(args, of, numbers, x);
    WEFT_UNROLL
    for (int p = 0; p < kPairs; ++p)
      if (columns[p] >= 0) {
        const float two[2] = {x[p / 2][p % 2 * 2], x[p / 2][p % 2 * 2 + 1]};
        write(index, columns[p], two);
      }
  }
  return true;
}

}  // namespace weft::decode::fused
