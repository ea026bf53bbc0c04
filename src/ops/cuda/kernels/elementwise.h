// Norms, gates, caps and rotation: a warp a row, or a piece of it, dealt over all warps of the launch.
#pragma once

#include "ops/cuda/kernels/gates.h"
#include "ops/cuda/kernels/rows.h"
#include "tile/cuda/ptx/dependent_launch.h"

namespace weft::ops {

inline constexpr int kRowThreads = 256;

template <class Work>
WEFT_INLINE void for_rows(i64 rows, const Work& work) {
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  const i64 warps = static_cast<i64>(ptx::num_ctas()) * (kRowThreads / 32);
  for (i64 row = static_cast<i64>(ptx::cta_index()) * (kRowThreads / 32) + ptx::warp(); row < rows; row += warps)
    work(row);
}

// The same for pieces of rows: work(row, columns), where columns(f) calls f(k, i) with the k-th column i of this lane.
inline constexpr int kPieceOfLane = kPieceColumns / 32;
template <class Work>
WEFT_INLINE void for_pieces(i64 rows, int dim, const Work& work) {
  const int pieces = (dim + kPieceColumns - 1) / kPieceColumns;
  for_rows(rows * pieces, [&](i64 at) {
    const int first = static_cast<int>(at % pieces) * kPieceColumns + ptx::lane();
    work(at / pieces, [&](const auto& f) {
      WEFT_UNROLL
      for (int k = 0; k < kPieceOfLane; ++k)
        if (first + 32 * k < dim) f(k, first + 32 * k);
    });
  });
}

WEFT_INLINE void norm_row(const NormArgs& args, i64 row) {
  const float* x = row_of(args.x, row);
  float* residual = args.residual.data != nullptr ? row_of(args.residual, row) : nullptr;
  if (residual != nullptr && !args.onto)
    for (int i = ptx::lane(); i < args.dim; i += 32) residual[i] += x[i];
  const float* from = residual != nullptr && !args.onto ? residual : x;  // what this lane reads, it has written
  const NormFactors factors = norm_factors(args.dim, args.eps, [&](int i) { return from[i]; });
  float* to = args.onto ? residual : row_of(args.y, row);
  for (int i = ptx::lane(); i < args.dim; i += 32) {
    const float y = from[i] * factors.before * factors.after * args.weight[i];
    to[i] = args.onto ? to[i] + y : y;
  }
}

WEFT_INLINE void rotate_row(const RotateArgs& args, i64 row) {
  float* x = row_of(args.x, row);
  const i64 angles = row / args.heads * args.pairs;
  for (int i = ptx::lane(); i < args.pairs; i += 32)
    rotate(x[args.halves ? i : 2 * i], x[args.halves ? i + args.pairs : 2 * i + 1], args.cos[angles + i],
           args.sin[angles + i]);
}

WEFT_INLINE void rotate_row_at(const RotateAtArgs& args, i64 row) {
  float* x = row_of(args.x, row);
  const double position = args.positions[row / args.heads];
  for (int i = ptx::lane(); i < args.pairs; i += 32) {
    const double turns = position * args.turns[i];
    const auto angle = static_cast<float>((turns - static_cast<double>(static_cast<i64>(turns))) * 6.283185307179586);
    rotate(x[args.halves ? i : 2 * i], x[args.halves ? i + args.pairs : 2 * i + 1], args.factor * weft::cos(angle),
           args.factor * weft::sin(angle));
  }
}

}  // namespace weft::ops

WEFT_KERNEL(256, 1) void weft_rotate_at(WEFT_PARAM weft::ops::RotateAtArgs args) {
  weft::ops::for_rows(args.rows, [&](weft::i64 row) { weft::ops::rotate_row_at(args, row); });
}

WEFT_KERNEL(256, 1) void weft_norm(WEFT_PARAM weft::ops::NormArgs args) {
  weft::ops::for_rows(args.rows, [&](weft::i64 row) { weft::ops::norm_row(args, row); });
}

WEFT_KERNEL(256, 1) void weft_gate(WEFT_PARAM weft::ops::GateArgs args) {
  using namespace weft;
  ops::for_pieces(args.rows, args.dim, [&](i64 row, const auto& columns) {
    const float *gate = ops::row_of(args.gate, row), *up = ops::row_of(args.up, row);
    float* y = ops::row_of(args.y, row);
    float gates[ops::kPieceOfLane], ups[ops::kPieceOfLane];  // all are on their way before one is written
    columns([&](int k, int i) { gates[k] = gate[i], ups[k] = up[i]; });
    columns([&](int k, int i) { y[i] = ops::gate_of(gates[k], args.gelu) * ups[k]; });
  });
}

WEFT_KERNEL(256, 1) void weft_cap(WEFT_PARAM weft::ops::CapArgs args) {
  using namespace weft;
  ops::for_pieces(args.rows, args.dim, [&](i64 row, const auto& columns) {
    float* x = ops::row_of(args.x, row);
    float values[ops::kPieceOfLane];
    columns([&](int k, int i) { values[k] = x[i]; });
    columns([&](int k, int i) { x[i] = ops::capped(values[k], args.cap); });
  });
}

WEFT_KERNEL(256, 1) void weft_add_row(WEFT_PARAM weft::ops::AddRowArgs args) {
  using namespace weft;
  ops::for_pieces(args.rows, args.dim, [&](i64 row, const auto& columns) {
    float* x = ops::row_of(args.x, row);
    float sums[ops::kPieceOfLane];
    columns([&](int k, int i) { sums[k] = x[i] + args.row[i]; });
    columns([&](int k, int i) { x[i] = sums[k]; });
  });
}

WEFT_KERNEL(256, 1) void weft_rotate(WEFT_PARAM weft::ops::RotateArgs args) {
  weft::ops::for_rows(args.rows, [&](weft::i64 row) { weft::ops::rotate_row(args, row); });
}
