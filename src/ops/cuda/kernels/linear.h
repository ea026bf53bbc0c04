// y = x W^T for a few rows of x: a warp has kOutputs rows of the weights at a time, its lanes the pieces of them, and
// the rows of x lie in shared memory. All that is read of global memory but x is read once, so the bytes of the weights
// are the cost.
//
// The generated text instantiates it: WEFT_LINEAR(symbol, weights, rows of x, outputs of a warp, gated) and
// WEFT_EMBED(symbol, weights). With a gate the weights have two rows for each output, its gate's first, the other one
// `outputs` rows behind: y = gate(the first's) * the other's.
#pragma once

#include "ops/cuda/kernels/gates.h"
#include "ops/cuda/kernels/rows.h"
#include "ops/cuda/kernels/weights.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/dependent_launch.h"

namespace weft::ops {

inline constexpr int kLinearWarps = 8;

// Where column k of a row of x lies in shared memory: lanes that read 16 bytes at strides of 4, 8, 16 or 32 columns
// find them in different banks.
WEFT_INLINE constexpr int spread(int k) { return k + k / 32 * 4; }

template <class Weights, int kRows, int kOutputs, bool kGated>
struct Linear {
  static constexpr int kThreads = 32 * kLinearWarps, kWeights = Weights::kWeights;
  static constexpr int kOfWarp = kGated ? kOutputs / 2 : kOutputs;
  // Pieces of a row that a lane has on their way: enough bytes in all to keep memory busy for as long as a load takes,
  // in registers for two CTAs. What a piece of 32 weights is unpacked to leaves room for fewer.
  static constexpr int kAhead = kRows > 2        ? 1
                                : kWeights == 32 ? kOutputs == 4 ? 1 : 2
                                : kOutputs == 1  ? 4
                                : kOutputs == 2  ? 3
                                                 : 2;
  using Pieces = Weights[kOutputs];
  using Sums = float[kOutputs][kRows];
  // In shared memory, behind it the rows of x.
  struct Shared {
    float squares[kRows][kLinearWarps];
  };

  WEFT_INLINE static void run(const LinearArgs& args) {
    Shared& shared = *reinterpret_cast<Shared*>(ptx::shared_memory());
    float* x = reinterpret_cast<float*>(ptx::shared_memory() + (sizeof(Shared) + 15) / 16 * 16);  // [kRows, stride]
    const int stride = spread((args.chunk + 31) / 32 * 32);
    const i64 step = static_cast<i64>(ptx::num_ctas()) * kLinearWarps * kOfWarp;
    i64 cta_first = static_cast<i64>(ptx::cta_index()) * kLinearWarps * kOfWarp;
    Pieces next[kAhead];  // of the weights, which no kernel before this one writes: they are on their way while it ends
    load_first(args, cta_first, next);
    ptx::wait_for_previous_kernel();
    ptx::allow_next_kernel();
    float squares[kRows] = {};
    for (bool is_first = true; cta_first < args.outputs; cta_first += step, is_first = false) {
      const Output output(args, cta_first + ptx::warp() * kOfWarp);
      const float before = args.add && output.exists ? *output.y : 0.f;  // on its way while rows are multiplied
      Sums sums = {};
      int piece = ptx::lane();
      for (int k = 0; k < args.cols; k += args.chunk) {
        if (is_first || args.chunk < args.cols) {
          ptx::cta_sync();  // nobody reads the columns before
          fill(args, k, x, stride, squares);
          if (is_first && args.norm != nullptr) share(squares, shared);
          ptx::cta_sync();
        }
        multiply(args, cta_first, k, x, stride, piece, next, sums);
      }
      load_first(args, cta_first + step, next);
      finish(args, shared, output, before, sums);
    }
  }

 private:
  // This lane's, of those that the warp makes from column `first` of y on.
  struct Output {
    int row, column;  // of y, the latter counted from `first`
    bool exists;
    float* y;
    WEFT_INLINE Output(const LinearArgs& args, i64 first)
        : row(ptx::lane() / kOfWarp),
          column(ptx::lane() % kOfWarp),
          exists(row < kRows && row < args.rows && first + column < args.outputs),
          y(args.y + row * args.ldy + first + column) {}
  };
  static_assert(kRows * kOfWarp <= 32);

  // Columns k to k + chunk of x, times a norm's weights; what lies beyond x is zero. Squares are those of x.
  WEFT_INLINE static void fill(const LinearArgs& args, int k, float* x, int stride, float (&squares)[kRows]) {
    const int columns = (args.chunk + 31) / 32 * 32;
    if (args.is_aligned) {
      // A batch of loads is on its way at a time.
      constexpr int kBatch = kRows > 2 ? 1 : 4, kStep = 4 * kThreads;
      for (int first = 4 * ptx::thread_index(); first < columns; first += kBatch * kStep) {
        Bytes16 weights[kBatch], fours[kBatch][kRows];
        WEFT_UNROLL
        for (int b = 0; b < kBatch; ++b) {
          const int i = first + b * kStep;
          const bool is_there = i < columns && k + i < args.cols;
          weights[b] =
              args.norm != nullptr && is_there ? four_of(args.norm + k + i) : Bytes16{{kOne, kOne, kOne, kOne}};
          WEFT_UNROLL
          for (int row = 0; row < kRows; ++row)
            fours[b][row] = is_there && row < args.rows ? four_of(args.x + row * args.ldx + k + i) : Bytes16{};
        }
        WEFT_UNROLL
        for (int b = 0; b < kBatch; ++b) WEFT_UNROLL
        for (int row = 0; row < kRows; ++row) {
          Bytes16& four = fours[b][row];
          WEFT_UNROLL
          for (int e = 0; e < 4; ++e) {
            const float value = ptx::from_bits(four.word[e]);
            squares[row] += value * value;
            four.word[e] = ptx::to_bits(value * ptx::from_bits(weights[b].word[e]));
          }
          if (first + b * kStep < columns)
            *reinterpret_cast<Bytes16*>(x + row * stride + spread(first + b * kStep)) = four;
        }
      }
      return;
    }
    WEFT_NO_UNROLL
    for (int i = ptx::thread_index(); i < columns; i += kThreads) {
      const bool is_there = k + i < args.cols;
      const float weight = args.norm != nullptr && is_there ? args.norm[k + i] : 1.f;
      WEFT_UNROLL
      for (int row = 0; row < kRows; ++row) {
        const float value = is_there && row < args.rows ? args.x[row * args.ldx + k + i] : 0.f;
        squares[row] += value * value;
        x[row * stride + spread(i)] = value * weight;
      }
    }
  }

  static constexpr u32 kOne = 0x3f800000u;  // 1.f
  WEFT_INLINE static Bytes16 four_of(const float* p) { return *reinterpret_cast<const Bytes16*>(p); }

  // The warp's squares so far, for all warps.
  WEFT_INLINE static void share(const float (&squares)[kRows], Shared& shared) {
    WEFT_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const float sum = tile::lane_sum(squares[row]);
      if (ptx::lane() == 0) shared.squares[row][ptx::warp()] = sum;
    }
  }
  WEFT_INLINE static float squares_of(const Shared& shared, int row) {
    float sum = 0.f;
    WEFT_UNROLL
    for (int warp = 0; warp < kLinearWarps; ++warp) sum += shared.squares[row][warp];
    return sum;
  }
  // Of each lane's own row of x, once all squares are shared. All lanes call.
  WEFT_INLINE static NormFactors factors_of(const LinearArgs& args, const Shared& shared, int own_row) {
    return factors_of_own_row(args.x, args.ldx, args.rows, args.cols, args.eps, own_row,
                              [&](int row) { return squares_of(shared, row < kRows ? row : 0); });
  }

  // The row of the weights that makes sum o; some row where there is none.
  WEFT_INLINE static i64 weight_row(const LinearArgs& args, i64 first, int o) {
    const i64 output = first + (kGated ? o / 2 : o);
    const i64 held = output < args.outputs ? output : args.outputs - 1;
    return kGated && o % 2 == 1 ? held + args.outputs : held;
  }

  // This warp's pieces where the outputs of its CTA begin at cta_first.
  WEFT_INLINE static void load(const LinearArgs& args, i64 cta_first, int piece, Pieces& to) {
    const int pieces = (args.cols + kWeights - 1) / kWeights;
    if (cta_first >= args.outputs || piece >= pieces) return;
    WEFT_UNROLL
    for (int o = 0; o < kOutputs; ++o)
      to[o].load(args.w, weight_row(args, cta_first + ptx::warp() * kOfWarp, o) * pieces + piece);
  }

  // The first of this lane's pieces.
  WEFT_INLINE static void load_first(const LinearArgs& args, i64 cta_first, Pieces (&next)[kAhead]) {
    WEFT_UNROLL
    for (int a = 0; a < kAhead; ++a) load(args, cta_first, ptx::lane() + 32 * a, next[a]);
  }

  // This lane's pieces within columns k to k + chunk, of which next[0] is the first; it becomes the one behind them.
  WEFT_INLINE static void multiply(const LinearArgs& args, i64 cta_first, int k, const float* x, int stride, int& piece,
                                   Pieces (&next)[kAhead], Sums& sums) {
    const int last = k + args.chunk < args.cols ? k + args.chunk : args.cols;
    int done = 0;
    while (piece * kWeights < last) {
      WEFT_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        if (piece * kWeights >= last) break;
        Pieces now;
        copy(next[a], now);
        load(args, cta_first, piece + 32 * kAhead, next[a]);
        multiply_piece(now, x + spread(piece * kWeights - k), stride, sums);
        piece += 32;
        ++done;
      }
    }
    if (kAhead == 1 || last == args.cols) return;
    for (; done % kAhead != 0; --done) {  // next[done % kAhead] is to be the first again
      Pieces first;
      copy(next[0], first);
      WEFT_UNROLL
      for (int a = 0; a + 1 < kAhead; ++a) copy(next[a + 1], next[a]);
      copy(first, next[kAhead - 1]);
    }
  }
  WEFT_INLINE static void copy(const Pieces& from, Pieces& to) {
    WEFT_UNROLL
    for (int o = 0; o < kOutputs; ++o) to[o] = from[o];
  }

  WEFT_INLINE static void multiply_piece(const Pieces& w, const float* x, int stride, Sums& sums) {
    constexpr int kGroups = kWeights / 4, kGroupsOfScale = kGroups / Weights::kScales;
    float x_sums[kRows] = {};
    WEFT_UNROLL
    for (int part = 0; part < Weights::kScales; ++part) {
      Sums products = {};
      WEFT_UNROLL
      for (int g = part * kGroupsOfScale; g < (part + 1) * kGroupsOfScale; ++g)
        multiply_group(w, g, x + 4 * g, stride, x_sums, products);
      WEFT_UNROLL
      for (int o = 0; o < kOutputs; ++o) WEFT_UNROLL
      for (int row = 0; row < kRows; ++row) sums[o][row] += w[o].scale(part) * products[o][row];
    }
    if constexpr (Weights::kHasLeast) {
      WEFT_UNROLL
      for (int o = 0; o < kOutputs; ++o) WEFT_UNROLL
      for (int row = 0; row < kRows; ++row) sums[o][row] += w[o].least() * x_sums[row];
    }
  }

  // Group g of the weights by its columns of x.
  WEFT_INLINE static void multiply_group(const Pieces& w, int g, const float* x, int stride, float (&x_sums)[kRows],
                                         Sums& products) {
    float q[kOutputs][4];
    WEFT_UNROLL
    for (int o = 0; o < kOutputs; ++o) w[o].numbers(g, q[o]);
    WEFT_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const Bytes16 four = *reinterpret_cast<const Bytes16*>(x + row * stride);
      WEFT_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float value = ptx::from_bits(four.word[i]);
        if constexpr (Weights::kHasLeast) x_sums[row] += value;
        WEFT_UNROLL
        for (int o = 0; o < kOutputs; ++o) products[o][row] += q[o][i] * value;
      }
    }
  }

  // Sums become the warp's outputs, each by a lane of its own. `before`: what the lane's is added to.
  WEFT_INLINE static void finish(const LinearArgs& args, const Shared& shared, const Output& output, float before,
                                 const Sums& sums) {
    float own = 0.f, multiplied = 0.f;  // of this lane; the latter by a gate
    WEFT_UNROLL
    for (int row = 0; row < kRows; ++row) WEFT_UNROLL
    for (int o = 0; o < kOutputs; ++o) {
      const float sum = tile::lane_sum(sums[o][row]);
      if (output.row == row && output.column == (kGated ? o / 2 : o)) (kGated && o % 2 == 1 ? multiplied : own) = sum;
    }
    if (args.norm != nullptr) {
      const NormFactors factors = factors_of(args, shared, output.row);
      own = own * factors.before * factors.after;
      if constexpr (kGated) multiplied = multiplied * factors.before * factors.after;
    }
    if (!output.exists) return;
    if constexpr (kGated) own = gate_of(own, args.gelu) * multiplied;
    *output.y = args.add ? before + own : own;
  }
};

// A row of the matrix is made by one CTA.
template <class Weights>
WEFT_INLINE void embed(const EmbedArgs& args) {
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  const i64 pieces = (args.cols + Weights::kWeights - 1) / Weights::kWeights;
  for (i64 row = ptx::cta_index(); row < args.rows; row += ptx::num_ctas())
    for (i64 piece = ptx::thread_index(); piece < pieces; piece += ptx::num_threads()) {
      Weights w;
      const i64 from = args.tokens != nullptr ? args.tokens[row] : args.first_row + row;
      w.load(args.w, from * pieces + piece);
      for (int g = 0; g < Weights::kWeights / 4; ++g) {
        float q[4];
        w.numbers(g, q);
        for (int i = 0; i < 4; ++i) {
          const i64 column = piece * Weights::kWeights + 4 * g + i;
          float value = w.scale(4 * g * Weights::kScales / Weights::kWeights) * q[i];
          if constexpr (Weights::kHasLeast) value += w.least();
          if (column < args.cols) args.to[row * args.cols + column] = value * args.scale;
        }
      }
    }
}

}  // namespace weft::ops

#define WEFT_LINEAR(symbol, weights, rows, outputs, gated)                                 \
  WEFT_KERNEL(256, rows <= 2 ? 2 : 1) void symbol(WEFT_PARAM weft::ops::LinearArgs args) { \
    weft::ops::Linear<weft::ops::weights, rows, outputs, gated>::run(args);                \
  }
#define WEFT_EMBED(symbol, weights) \
  WEFT_KERNEL(256, 1) void symbol(WEFT_PARAM weft::ops::EmbedArgs args) { weft::ops::embed<weft::ops::weights>(args); }
