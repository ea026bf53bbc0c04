// What the host side of gemm and its kernels share. Plain structs; docs/kernels/linear.md draws the layout.
//
// Packed weights are panels of `panel` outputs (columns of y), one after another. A panel of a quantised format is a
// sequence of blocks of 32 inputs:
//   q4_0   words[4][panel]  d[panel]             word j of a column: bytes 4j..4j+3 of its file block; byte b holds
//   q4_1   words[4][panel]  d[panel]  m[panel]     element 4j + b (low nibble) and 16 + 4j + b (high nibble)
//   q8_0   words[8][panel]  d[panel]             word j: elements 4j..4j+3
// with uint32 words and fp16 d and m: the file's bytes, reordered. A panel of bf16 is [ceil(cols / 2)][panel][2], a
// panel of f32 is [cols][panel].
#pragma once

namespace weft::gemm {

enum class Format : int { f32, bf16, q8_0, q4_0, q4_1 };
inline constexpr int kNumFormats = 5;
inline constexpr int kNumPrecisions = 3;

// How a product is computed.
//   fp32      weights expanded to fp32, fused multiply-add over k in order
//   bf16_dot  pairs of bf16 with the machine's dot product
//   pair16    int16 activations, one scale a row; int32 sums over a block of 32
//   quad8     int8 activations, one scale a block of 32
enum class Scheme : int { fp32, bf16_dot, pair16, quad8 };
inline constexpr int kNumSchemes = 4;

inline constexpr int kBlock = 32;             // inputs that share a scale
inline constexpr int kActivationMax = 32512;  // of int16 activations
inline constexpr int kFusedRows = 7;          // up to here weights are unpacked in registers, once
inline constexpr int kRowBlock = 192;         // rows of x that pass over one unpacked panel, at most

struct Panels {
  const char* data;
  long long panel_bytes;
  long long rows, cols;  // outputs, inputs
  Format format;
  Scheme scheme;
};

// Activations. Floats: row r at data + r * row_bytes, the caller's own for Scheme::fp32. Integers: [group][block][row of
// the group], a group being KernelTable::tile_rows rows, the last one perhaps with rows that nobody wrote.
struct Rows {
  char* data;
  long long row_bytes;
  long long blocks;  // of a row
  float* scales;     // pair16: [rows]; quad8: [group][block][row of the group]
  int* sums;         // [group][block][row of the group]: the sum of a block's integers
  float* real_sums;  // the same, times the block's scale for quad8
};

// y[row_begin..row_end) x columns of panels [panel_begin, panel_end). Row r of x and y counts from 0; row_begin is a
// multiple of tile_rows.
struct Job {
  Panels w;
  Rows x;
  float* y;  // y's column 0 is the panels' row 0
  long long ldy;
  long long panel_begin, panel_end, row_begin, row_end;
  char* scratch;  // KernelTable::scratch_bytes, 64-byte aligned
};

struct KernelTable {
  int panel, tile_rows;
  long long scratch_bytes;
  Scheme schemes[kNumFormats][kNumPrecisions];
  // Writes row `row` of x from floats. Bytes a row: activation_bytes(scheme, cols).
  void (*prepare)(Scheme scheme, const float* from, long long cols, const Rows& x, long long row);
  void (*multiply)(const Job& job);
};

constexpr long long activation_bytes(Scheme scheme, long long cols) {
  switch (scheme) {
    case Scheme::fp32: return 0;
    case Scheme::bf16_dot: return (cols + 1) / 2 * 4;
    case Scheme::pair16: return cols * 2;
    case Scheme::quad8: return cols;
  }
  return 0;
}

constexpr long long panel_bytes(Format format, long long cols, int panel) {
  switch (format) {
    case Format::f32: return cols * panel * 4;
    case Format::bf16: return (cols + 1) / 2 * panel * 4;
    case Format::q8_0: return cols / kBlock * panel * 34;
    case Format::q4_0: return cols / kBlock * panel * 18;
    case Format::q4_1: return cols / kBlock * panel * 20;
  }
  return 0;
}

namespace plain {
extern const KernelTable kernels;
}
namespace avx2 {
extern const KernelTable kernels;
}
namespace avx512 {
extern const KernelTable kernels;
}
namespace avx512_bf16 {
extern const KernelTable kernels;
}

}  // namespace weft::gemm
