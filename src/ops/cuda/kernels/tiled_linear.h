// y = x W^T for a few rows of x and weights in tiles (tile/cuda/matvec.h): a CTA has a band of 16 outputs at a time, or
// two, its warps share the columns, and what they leave is added up in their order. A warp has some pieces of weights
// on their way to its registers at any time, those of its next band too, and its own columns of x in shared memory.
//
// x is multiplied by products of warps, as a sum of numbers in bf16: of two, which are 17 bits of it, or of three,
// which are all. The parts of a row of x are columns of the product of their own:
//
//   column of a product of 8      0           1           2           3      ...
//                                 row 0 high  row 0 low   row 1 high  row 1 low      and where there is a third part:
//                                 row 0 last  nothing     row 1 last  nothing
//
// So a lane has all parts of one row of x, and adds them up. A row has the same bits in each of these kernels.
//
// The generated text instantiates it: WEFT_TILED_LINEAR(symbol, weights, rows of x, parts of x, bands, gated, warps,
// pieces on their way) and WEFT_TILED_EMBED(symbol, weights). With a gate the two bands are those of the gate and of
// what it multiplies, the latter `bands` bands behind: y = gate(the first's) * the other's.
#pragma once

#include "ops/cuda/kernels/gates.h"
#include "ops/cuda/kernels/rows.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/dependent_launch.h"
#include "tile/cuda/quantised_tiles.h"

namespace weft::ops {

#if WEFT_SM >= 80
// Piece `piece` of a band, counted over panels.
template <class Weights>
WEFT_INLINE const u8* piece_of(const CardTiles& w, i64 band, int piece) {
  const int panel = piece / w.strip_pieces;
  return w.data + panel * w.panel_bytes + (band * w.strip_pieces + (piece - panel * w.strip_pieces)) * Weights::kBytes;
}

// What a number in bf16, as the upper half of a float, leaves of x; nothing of one that is not finite.
WEFT_INLINE float rest_of(float x, u32 number) {
  return (number & 0x7f800000u) == 0x7f800000u ? 0.f : x - ptx::from_bits(number);
}

template <class Weights, int kRows, int kParts, int kBands, bool kGated, int kWarps, int kAhead>
struct TiledLinear {
  static_assert(!kGated || kBands == 2);
  static constexpr int kCols = Weights::kCols;
  static constexpr int kPairs = (kParts + 1) / 2;  // products of 8 columns for 4 rows of x
  static constexpr int kRowTiles = (kRows + 3) / 4, kTiles = kRowTiles * kPairs;
  static constexpr int kOfSet = kGated ? 16 : 16 * kBands;  // columns of y

  struct Pieces {
    typename Weights::Loaded of[kBands];
  };
  using Sums = float[kBands][kTiles][4];
  // In shared memory, behind it each warp's columns of x.
  struct Shared {
    float squares[kRows][kWarps];
    float sums[2][kWarps][kBands][kRows][16];  // sets take turns
  };

  WEFT_INLINE static void run(const TiledLinearArgs& args) {
    Shared& shared = *reinterpret_cast<Shared*>(ptx::shared_memory());
    const int ldx = row_stride(args.chunk * kCols), sets = kGated ? args.bands : (args.bands + kBands - 1) / kBands;
    bf16* const x = reinterpret_cast<bf16*>(ptx::shared_memory() + (sizeof(Shared) + 15) / 16 * 16) +
                    ptx::warp() * kRows * kParts * ldx;
    const Share share(args.w);
    // Of the weights, which no kernel before this one writes: they are on their way while it ends.
    Pieces next[kAhead];
    Loads loads(args, share, sets);
    WEFT_UNROLL
    for (int a = 0; a < kAhead; ++a) loads.take(args, next[a]);
    ptx::wait_for_previous_kernel();
    ptx::allow_next_kernel();
    const Columns columns(args, x, ldx);
    float squares[kRows] = {};
    bool is_first = true;
    for (int set = ptx::cta_index(), turn = 0; set < sets; set += ptx::num_ctas(), turn ^= 1, is_first = false) {
      const Output output(args, set);
      const float before = args.add && output.exists ? *output.y : 0.f;  // on its way while rows are multiplied
      Sums sums = {};
      for (int done = 0; done < share.count; done += args.chunk) {
        const int count = args.chunk < share.count - done ? args.chunk : share.count - done;
        if (is_first || args.chunk < share.count) {
          ptx::warp_sync();  // nobody reads the columns before
          fill(args, (share.first + done) * kCols, count * kCols, x, ldx, squares);
          ptx::warp_sync();
        }
        multiply(args, count, columns, loads, next, sums);
        if (done + count < share.count || set + ptx::num_ctas() < sets) turn_round(count, next);
      }
      if (is_first && args.norm != nullptr) share_squares(squares, shared);
      leave(sums, shared.sums[turn][ptx::warp()]);
      ptx::cta_sync();
      finish(args, shared, shared.sums[turn], output, before);
    }
  }

 private:
  static constexpr u32 kOne = 0x3f800000u;  // 1.f
  // Of a row's part in shared memory, in elements: 8 of them lie in different banks.
  WEFT_INLINE static int row_stride(int columns) { return (columns + 47) / 64 * 64 + 16; }

  // The warp's pieces of a band, `count` from `first` on, counted over panels: warps are dealt to panels, and share
  // each.
  struct Share {
    int panel, of_panel, first, count;
    WEFT_INLINE explicit Share(const CardTiles& w) {
      const int warp = ptx::warp();
      for (panel = 0; kWarps * (panel + 1) / w.panels <= warp;) ++panel;
      const int first_warp = kWarps * panel / w.panels, warps = kWarps * (panel + 1) / w.panels - first_warp;
      of_panel = w.strip_pieces * (warp - first_warp) / warps;
      count = w.strip_pieces * (warp - first_warp + 1) / warps - of_panel;
      first = panel * w.strip_pieces + of_panel;
    }
  };

  // The next pieces of the warp to be loaded, its sets one after another.
  struct Loads {
    const int of_set;  // pieces
    const i64 jump;    // from the end of a set's to the next set's
    const u8* at;
    i64 second;  // from a band to the other one
    int set, left, in_set;

    WEFT_INLINE Loads(const TiledLinearArgs& args, const Share& share, int sets)
        : of_set(share.count),
          jump((static_cast<i64>(ptx::num_ctas()) * (kGated ? 1 : kBands) * args.w.strip_pieces - share.count) *
               Weights::kBytes),
          set(ptx::cta_index()),
          left((sets - set + ptx::num_ctas() - 1) / ptx::num_ctas() * share.count),
          in_set(share.count) {
      at = args.w.data + share.panel * args.w.panel_bytes +
           (static_cast<i64>(set) * (kGated ? 1 : kBands) * args.w.strip_pieces + share.of_panel) * Weights::kBytes;
      find_second(args);
    }
    // An odd band is its own other one.
    WEFT_INLINE void find_second(const TiledLinearArgs& args) {
      const int bands = kBands == 1 ? 0 : kGated ? args.bands : 2 * set + 1 < args.bands ? 1 : 0;
      second = static_cast<i64>(bands) * args.w.strip_pieces * Weights::kBytes;
    }
    WEFT_INLINE void take(const TiledLinearArgs& args, Pieces& to) {
      if (left <= 0) return;
      const int lane = ptx::lane();
      WEFT_UNROLL
      for (int b = 0; b < kBands; ++b) to.of[b] = Weights::load(lane, at + b * second);
      at += Weights::kBytes;
      --left;
      if (--in_set > 0) return;
      at += jump;
      in_set = of_set;
      set += ptx::num_ctas();
      if constexpr (kBands == 2 && !kGated) find_second(args);
    }
  };

  // Where this lane's columns of x lie: of row g / 2 of each four, where there is none of the first one, part g % 2 and
  // then the last one.
  struct Columns {
    const bf16* x;
    int tile[kRowTiles], last;  // the latter from part g % 2 on
    WEFT_INLINE Columns(const TiledLinearArgs& args, const bf16* of_warp, int ldx) : x(of_warp) {
      const int g = ptx::lane() / 4;
      WEFT_UNROLL
      for (int j = 0; j < kRowTiles; ++j) {
        const int row = 4 * j + g / 2;
        tile[j] = ((row < args.rows ? row : 0) * kParts + g % 2) * ldx + ptx::lane() % 4 * 4;
      }
      last = (2 - g % 2) * ldx;
    }
  };

  // This lane's, of those that the CTA makes of a set.
  struct Output {
    int row, column;  // of y, the latter counted from the set's first
    bool exists;
    float* y;
    WEFT_INLINE Output(const TiledLinearArgs& args, int set)
        : row(ptx::thread_index() / kOfSet), column(ptx::thread_index() % kOfSet) {
      const i64 of_y = static_cast<i64>(set) * kOfSet + column;
      exists = row < args.rows && of_y < args.outputs;
      y = args.y + row * args.ldy + of_y;
    }
  };
  static_assert(kRows * kOfSet <= 32 * kWarps);

  // Columns k to k + count of x, times a norm's weights, in parts; what lies beyond x is zero. Squares are those of x.
  WEFT_INLINE static void fill(const TiledLinearArgs& args, int k, int count, bf16* x, int ldx,
                               float (&squares)[kRows]) {
    constexpr int kStep = 4 * 32;
    if (args.is_aligned) {
      // A batch of loads is on its way at a time.
      constexpr int kBatch = kRows > 2 ? 1 : 4;
      WEFT_NO_UNROLL
      for (int first = 4 * ptx::lane(); first < count; first += kBatch * kStep) {
        Bytes16 weights[kBatch], fours[kBatch][kRows];
        WEFT_UNROLL
        for (int b = 0; b < kBatch; ++b) {
          const int i = first + b * kStep;
          const bool is_there = i < count && k + i < args.cols;
          weights[b] =
              args.norm != nullptr && is_there ? four_of(args.norm + k + i) : Bytes16{{kOne, kOne, kOne, kOne}};
          WEFT_UNROLL
          for (int row = 0; row < kRows; ++row)
            fours[b][row] = is_there && row < args.rows ? four_of(args.x + row * args.ldx + k + i) : Bytes16{};
        }
        WEFT_UNROLL
        for (int b = 0; b < kBatch; ++b) WEFT_UNROLL
        for (int row = 0; row < kRows; ++row)
          if (first + b * kStep < count && row < args.rows)
            put(fours[b][row], weights[b], x + row * kParts * ldx + first + b * kStep, ldx, squares[row]);
      }
      return;
    }
    WEFT_NO_UNROLL
    for (int i = 4 * ptx::lane(); i < count; i += kStep) {
      Bytes16 weights;
      const auto four_at = [&](const float* from, u32 none) {
        Bytes16 four;
        WEFT_UNROLL
        for (int e = 0; e < 4; ++e)
          four.word[e] = from != nullptr && k + i + e < args.cols ? ptx::to_bits(from[k + i + e]) : none;
        return four;
      };
      weights = four_at(args.norm, kOne);
      WEFT_UNROLL
      for (int row = 0; row < kRows; ++row)
        if (row < args.rows)
          put(four_at(args.x + row * args.ldx, 0), weights, x + row * kParts * ldx + i, ldx, squares[row]);
    }
  }
  WEFT_INLINE static Bytes16 four_of(const float* p) { return *reinterpret_cast<const Bytes16*>(p); }

  WEFT_INLINE static void put(const Bytes16& four, const Bytes16& weights, bf16* to, int ldx, float& squares) {
    float rest[4];
    WEFT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const float value = ptx::from_bits(four.word[e]);
      squares += value * value;
      rest[e] = value * ptx::from_bits(weights.word[e]);
    }
    WEFT_UNROLL
    for (int part = 0; part < kParts; ++part) {
      tile::Bytes8 words;
      WEFT_UNROLL
      for (int i = 0; i < 2; ++i) {
        words.word[i] = tile::pack<bf16>(rest[2 * i], rest[2 * i + 1]);
        rest[2 * i] = rest_of(rest[2 * i], words.word[i] << 16);
        rest[2 * i + 1] = rest_of(rest[2 * i + 1], words.word[i] & 0xffff0000u);
      }
      *reinterpret_cast<tile::Bytes8*>(to + part * ldx) = words;
    }
  }

  // `count` more pieces of a set, of which next[0] is the first; behind them next[count % kAhead] is.
  WEFT_INLINE static void multiply(const TiledLinearArgs& args, int count, const Columns& columns, Loads& loads,
                                   Pieces (&next)[kAhead], Sums& sums) {
    const bf16* x = columns.x;
    int done = 0;
    WEFT_NO_UNROLL
    while (done < count) {
      WEFT_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        if (done >= count) break;
        const auto x_of = [&](int tile, int, int fragment) {
          return *reinterpret_cast<const tile::Bytes8*>(x + columns.tile[tile / kPairs] +
                                                        (tile % kPairs == 1 ? columns.last : 0) + 16 * fragment);
        };
        Weights::template multiply_loaded<1>(next[a].of, x_of, sums);
        loads.take(args, next[a]);
        x += kCols;
        ++done;
      }
    }
  }
  // next[count % kAhead] is to be the first again.
  WEFT_INLINE static void turn_round(int count, Pieces (&next)[kAhead]) {
    WEFT_NO_UNROLL
    for (int left = count % kAhead; left > 0; --left) {
      const Pieces first = next[0];
      WEFT_UNROLL
      for (int a = 0; a + 1 < kAhead; ++a) next[a] = next[a + 1];
      next[kAhead - 1] = first;
    }
  }

  // The warp's squares, for all warps.
  WEFT_INLINE static void share_squares(const float (&squares)[kRows], Shared& shared) {
    WEFT_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const float sum = tile::lane_sum(squares[row]);
      if (ptx::lane() == 0) shared.squares[row][ptx::warp()] = sum;
    }
  }
  // The parts of a row are added up.
  WEFT_INLINE static void leave(const Sums& sums, float (&to)[kBands][kRows][16]) {
    const int g = ptx::lane() / 4;
    WEFT_UNROLL
    for (int b = 0; b < kBands; ++b) WEFT_UNROLL
    for (int j = 0; j < kRowTiles; ++j) {
      const int row = 4 * j + ptx::lane() % 4;
      WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        float sum = sums[b][j * kPairs][2 * half] + sums[b][j * kPairs][2 * half + 1];
        if constexpr (kPairs == 2) sum += sums[b][j * kPairs + 1][2 * half];
        if (row < kRows) to[b][row][g + 8 * half] = sum;
      }
    }
  }

  // Sums of warps become outputs, each by a thread of its own. `before`: what the thread's is added to.
  WEFT_INLINE static void finish(const TiledLinearArgs& args, const Shared& shared,
                                 const float (&sums)[kWarps][kBands][kRows][16], const Output& output, float before) {
    if (ptx::warp() * 32 / kOfSet >= args.rows) return;
    const int row = output.row < kRows ? output.row : 0;
    float own[kGated ? 2 : 1];
    WEFT_UNROLL
    for (int b = 0; b < (kGated ? 2 : 1); ++b) {
      own[b] = 0.f;
      WEFT_UNROLL
      for (int warp = 0; warp < kWarps; ++warp)
        own[b] += sums[warp][kGated ? b : output.column / 16][row][output.column % 16];
    }
    if (args.norm != nullptr) {
      const NormFactors factors =
          factors_of_own_row(args.x, args.ldx, args.rows, args.cols, args.eps, output.row, [&](int of) {
            float sum = 0.f;
            WEFT_UNROLL
            for (int warp = 0; warp < kWarps; ++warp) sum += shared.squares[of < kRows ? of : 0][warp];
            return sum;
          });
      WEFT_UNROLL
      for (float& sum : own) sum = sum * factors.before * factors.after;
    }
    if (!output.exists) return;
    const float made = kGated ? gate_of(own[0], args.gelu) * own[kGated ? 1 : 0] : own[0];
    *output.y = args.add ? before + made : made;
  }
};

// A row of the matrix is made by one CTA.
template <class Weights>
WEFT_INLINE void embed_tiles(const TiledEmbedArgs& args) {
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  for (i64 row = ptx::cta_index(); row < args.rows; row += ptx::num_ctas()) {
    const i64 from = args.tokens != nullptr ? args.tokens[row] : args.first_row + row;
    for (i64 column = 4 * ptx::thread_index(); column < args.cols; column += 4 * ptx::num_threads()) {
      const u8* const piece = piece_of<Weights>(args.w, from / 16, static_cast<int>(column / Weights::kCols));
      float values[4];
      tile::row_values<Weights>(piece, static_cast<int>(from % 16), static_cast<int>(column), values);
      float* const to = args.to + row * args.cols + column;
      if (args.is_aligned) {
        Bytes16 four;
        WEFT_UNROLL
        for (int i = 0; i < 4; ++i) four.word[i] = ptx::to_bits(values[i] * args.scale);
        *reinterpret_cast<Bytes16*>(to) = four;
      } else {
        for (int i = 0; i < 4; ++i)
          if (column + i < args.cols) to[i] = values[i] * args.scale;
      }
    }
  }
}
#endif

}  // namespace weft::ops

#define WEFT_TILED_LINEAR(symbol, weights, rows, parts, bands, gated, warps, ahead)                  \
  WEFT_KERNEL(32 * warps, 16 / warps) void symbol(WEFT_PARAM weft::ops::TiledLinearArgs args) {      \
    weft::ops::TiledLinear<weft::tile::weights, rows, parts, bands, gated, warps, ahead>::run(args); \
  }
#define WEFT_TILED_EMBED(symbol, weights)                                      \
  WEFT_KERNEL(256, 1) void symbol(WEFT_PARAM weft::ops::TiledEmbedArgs args) { \
    weft::ops::embed_tiles<weft::tile::weights>(args);                         \
  }
