// What the host side of gemm and its kernels share. Plain structs; docs/kernels/linear.md draws the layout.
//
// Packed weights are panels of `panel` outputs (columns of y), one after another. A panel of a quantised format is a
// sequence of blocks of 32 inputs:
//   q4_0   words[4][panel]  d[panel]             word j of a column: bytes 4j..4j+3 of its file block; byte b holds
//   q4_1   words[4][panel]  d[panel]  m[panel]     element 4j + b (low nibble) and 16 + 4j + b (high nibble)
//   q8_0   words[8][panel]  d[panel]             word j: elements 4j..4j+3
//   q4_k   words[4][panel]  d[panel]  m[panel]  sd[panel]  sm[panel]     as q4_1, with d * sd for d and m * sm for m
//   q6_k   words[8][panel]  d[panel]  sd[2][panel]      as q8_0, with d * sd[0] for the first 16 inputs, then d * sd[1]
// with uint32 words, fp16 d and m, int8 sd and sm: the file's numbers, reordered. A panel of f16 is [cols][panel], of
// bf16 [ceil(cols / 2)][panel][2], of f32 [cols][panel].
#pragma once

#include "device/cpu/built_isas.h"

namespace weft::gemm {

enum class Format : int { f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q6_k };
inline constexpr int kNumFormats = 8;
inline constexpr int kNumPrecisions = 3;

// How a product is computed.
//   fp32        weights expanded to fp32, fused multiply-add over k in order
//   bf16_dot    pairs of bf16 with the machine's dot product
//   pair16      int16 activations, one scale a row; int32 sums over a block of 32
//   split_int8  the same numbers, each int16 as two signed bytes: less to unpack, so for few rows
//   quad8       int8 activations, one scale a block of 32
enum class Scheme : int { fp32, bf16_dot, pair16, quad8, split_int8 };
inline constexpr int kNumSchemes = 5;

inline constexpr int kBlock = 32;             // inputs that share a scale
inline constexpr int kActivationMax = 32512;  // of int16 activations
inline constexpr int kLeastOffset = 8;        // of packed integers above their weights, where they have one; else 128
inline constexpr int kFusedRows = 7;          // up to here unpacked weights are kept nowhere
inline constexpr int kRowBlock = 192;         // rows of x that pass over one unpacked panel, at most

struct Panels {
  const char* data;
  long long panel_bytes;
  long long rows, cols;  // outputs, inputs
  Format format;
  Scheme scheme;
};

// Activations. Floats: row r at data + r * row_bytes. Integers: [group][block][row of the group], the last group
// perhaps with rows that nobody wrote: they are multiplied, and left out of y.
struct Rows {
  char* data;
  long long row_bytes;
  int group;         // rows of a group: one of KernelTable::tile_rows
  long long blocks;  // of a row
  float* scales;     // pair16, split_int8: [rows]; quad8: [group][block][row of the group]
  // [group][block][row of the group], made of the sum of a block's integers:
  int* offsets;      // times -kLeastOffset
  float* real_sums;  // times the block's scale for quad8
};

// y[row_begin..row_end) x columns of panels [panel_begin, panel_end). Row r of x and y counts from 0; row_begin is a
// multiple of the group.
struct Job {
  Panels w;
  Rows x;
  float* y;  // y's column 0 is the panels' row 0
  long long ldy;
  long long panel_begin, panel_end, row_begin, row_end;
  char* scratch;  // KernelTable::scratch_bytes, 64-byte aligned
};

// Rows of a tile: fewer, where they waste less of the last one, and most.
struct TileRows {
  int few, most;
};

struct KernelTable {
  int panel;
  TileRows tile_rows[2];  // where a vector is stored in one cycle, and in more
  int split_rows;         // up to here pair16 is done as split_int8, where the format allows it
  long long scratch_bytes;
  Scheme schemes[kNumFormats][kNumPrecisions];
  // Writes row `row` of x from floats. Bytes a row: activation_bytes(scheme, cols).
  void (*prepare)(Scheme scheme, const float* from, long long cols, const Rows& x, long long row);
  void (*multiply)(const Job& job);
};

constexpr bool is_floating(Scheme scheme) { return scheme == Scheme::fp32 || scheme == Scheme::bf16_dot; }

constexpr long long activation_bytes(Scheme scheme, long long cols) {
  // An odd number of lines: the rows of a tile, of which each step reads a word, would meet in one set of the
  // first-level cache where the inputs are a power of two.
  const auto apart = [](long long bytes) { return ((bytes + 63) / 64 | 1) * 64; };
  switch (scheme) {
    case Scheme::fp32: return apart(cols * 4);
    case Scheme::bf16_dot: return apart((cols + 1) / 2 * 4);
    case Scheme::pair16:
    case Scheme::split_int8: return cols * 2;
    case Scheme::quad8: return cols;
  }
  return 0;
}

// What a column of a block consists of: words, fp16 scales, int8 scales. All 0: a format that is not quantised.
struct BlockLayout {
  int words, halves, bytes;
};
constexpr BlockLayout block_layout(Format format) {
  switch (format) {
    case Format::f32:
    case Format::f16:
    case Format::bf16: return {0, 0, 0};
    case Format::q8_0: return {8, 1, 0};
    case Format::q4_0: return {4, 1, 0};
    case Format::q4_1: return {4, 2, 0};
    case Format::q4_k: return {4, 2, 2};
    case Format::q6_k: return {8, 1, 2};
  }
  return {0, 0, 0};
}

constexpr long long panel_bytes(Format format, long long cols, int panel) {
  if (format == Format::f32) return cols * panel * 4;
  if (format == Format::f16) return cols * panel * 2;
  if (format == Format::bf16) return (cols + 1) / 2 * panel * 4;
  const BlockLayout layout = block_layout(format);
  return cols / kBlock * panel * (layout.words * 4 + layout.halves * 2 + layout.bytes);
}

WEFT_DECLARE_PER_ISA(const KernelTable kernels)

}  // namespace weft::gemm
