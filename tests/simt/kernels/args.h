// Arguments of the kernels here, for host and kernel alike.
#pragma once

#include "tile/abi/leaf.h"
#include "tile/abi/tensor_map.h"

namespace weft {

struct SumArgs {
  const float* x;  // [n]
  int n;
  float* shares;      // [CTAs]
  unsigned* arrived;  // 0 before and after
  float* total;
};

// c = a b^T
struct GemmArgs {
  const void* a;  // [m, k], 16-bit floats
  const void* b;  // [n, k]
  float* c;       // [m, n]
  int m, n, k;    // k is a multiple of 8
};

struct AttendArgs {
  const void *q, *k, *v;  // [num_queries, dim], [n, dim], [n, dim]; dim 64 of bf16, 80 of fp16
  float* o;               // [num_queries, dim]
  float* lse;             // [num_queries]
  int num_queries, n;
  bool causal;  // query i sees key j iff j <= i + n - num_queries
  float sm_scale;
};

struct ConvertArgs {
  int type;               // fp16, bf16, e4m3, e5m2, int8, int4
  const unsigned* words;  // [n]
  int n;
  float* floats;        // all elements of the words
  const float* values;  // [num_values]
  int num_values;
  unsigned* halves;        // [2, num_values]: (x, -x) in fp16, in bf16
  unsigned short* stored;  // [num_values] in fp16
};

inline constexpr int kInstructionWords = 81;  // that every lane tells
struct InstructionsArgs {
  unsigned* words;       // [kInstructionWords, 32]
  float* near;           // [2, 128]: exp2, log2, which a card rounds in its own way
  const float* numbers;  // [128]
  unsigned* counters;    // [32]
};

inline constexpr int kRowsRows = 24;
struct RowsArgs {
  const void* from;  // [kRowsRows, columns], 16-bit
  void* to;          // the same
  int columns;       // 24, 80 or 128
};

struct ScoresArgs {
  const abi::Slot* params;
  float* scores;  // [rows, columns]
  float* vector;  // [dim]
  float* to;      // [dim]
  int rows, columns, dim;
};

inline constexpr int kFunctions = 7;  // exp, exp2, log, tanh, fast_tanh, sigmoid, abs
struct FunctionsArgs {
  const float* x;  // [n]
  float* y;        // [kFunctions, n]
  int n;
};

// Of tests/simt/kernels/persistent.h, whose kernels stay on a card and take what comes.
inline constexpr int kRingEntries = 4, kRingEntryBytes = 4096, kRingCopies = 19;
inline constexpr int ring_bytes(int i) { return 16 * (1 + i * 37 % (kRingEntryBytes / 16)); }  // of copy i
inline constexpr int ring_bytes_before(int i) { return i == 0 ? 0 : ring_bytes_before(i - 1) + ring_bytes(i - 1); }
inline constexpr int kRingBytes = ring_bytes_before(kRingCopies);
inline constexpr int kRingShared = kRingEntries * (kRingEntryBytes + 16);
inline constexpr int kLanesRingBytes = 2 * kRingEntryBytes, kLanesRingShared = kLanesRingBytes + kRingEntries * 28 + 16;
struct PersistentArgs {
  const unsigned* x;          // [CTAs, kRingBytes / 4]
  unsigned* y;                // [CTAs, 256]
  unsigned* counters;         // [CTAs], 0
  unsigned long long* words;  // [CTAs, 4], 0
};

// Of tests/simt/kernels/wgmma_forms.h: products of a warpgroup over kFormDepth steps of k. A tile's rows are steps of k
// where it is of Major::mn, else rows of A or columns of B.
inline constexpr int kFormDepth = 64, kFormShared = 64 * 128 + 256 * 128;
struct WgmmaForm {
  int n;
  bool bf16;  // or fp16
  abi::Major a, b;
  abi::Swizzle swizzle;
  bool a_in_registers;

  constexpr abi::MatrixTile tile_of(abi::Major major, int columns) const {
    return major == abi::Major::k ? abi::MatrixTile{columns, kFormDepth, swizzle}
                                  : abi::MatrixTile{kFormDepth, columns, swizzle};
  }
  constexpr abi::MatrixTile a_tile() const { return tile_of(a, 64); }
  constexpr abi::MatrixTile b_tile() const { return tile_of(b, n); }
};
namespace forms {
using enum abi::Swizzle;
inline constexpr auto k = abi::Major::k, mn = abi::Major::mn;
inline constexpr WgmmaForm kAll[] = {
    // Scores: every width, and every swizzle.
    {8, true, k, k, bytes_128, false},
    {16, true, k, k, bytes_128, false},
    {32, true, k, k, bytes_128, false},
    {48, true, k, k, bytes_128, false},
    {64, true, k, k, bytes_128, false},
    {80, true, k, k, bytes_128, false},
    {96, true, k, k, bytes_128, false},
    {112, true, k, k, bytes_128, false},
    {128, true, k, k, bytes_128, false},
    {144, true, k, k, bytes_128, false},
    {160, true, k, k, bytes_128, false},
    {176, true, k, k, bytes_128, false},
    {192, true, k, k, bytes_128, false},
    {208, true, k, k, bytes_128, false},
    {224, true, k, k, bytes_128, false},
    {240, true, k, k, bytes_128, false},
    {256, true, k, k, bytes_128, false},
    {80, true, k, k, none, false},
    {80, true, k, k, bytes_32, false},
    {80, false, k, k, bytes_64, false},
    // Probabilities in registers times values, by the dims of heads.
    {64, true, k, mn, bytes_128, true},
    {80, true, k, mn, bytes_32, true},
    {96, false, k, mn, bytes_64, true},
    {112, true, k, mn, bytes_32, true},
    {128, false, k, mn, bytes_128, true},
    {160, true, k, mn, bytes_64, true},
    {192, true, k, mn, bytes_128, true},
    {256, true, k, mn, bytes_128, true},
    {64, true, k, mn, none, true},
    {32, true, k, k, bytes_128, true},
    // A by its columns: keys times queries.
    {16, true, mn, k, bytes_128, false},
    {16, true, mn, mn, bytes_32, false},
    {64, false, mn, mn, bytes_64, false},
    {48, true, mn, k, none, false},
};
}  // namespace forms
inline constexpr int kWgmmaForms = sizeof(forms::kAll) / sizeof(WgmmaForm);
struct WgmmaFormArgs {
  const void* a;  // the rows of the tiles, 16-bit floats
  const void* b;
  float* d;  // [64, n]; products of odd forms are added to 7 - row
};

// Of tests/simt/kernels/warpgroup_gemm.h: c = a b^T, a of [m, k] in boxes of kGemmA's rows and columns, b of [n, k].
inline constexpr abi::MatrixTile kGemmA = {64, 64, abi::Swizzle::bytes_128},
                                 kGemmB = {128, 64, abi::Swizzle::bytes_128};
inline constexpr int kGemmStageBytes = kGemmA.bytes() + kGemmB.bytes();
inline constexpr int kWarpgroupGemmShared = 2 * kGemmStageBytes + 4 * 8;
struct WarpgroupGemmArgs {
  abi::TensorMap a, b;
  float* c;     // [m, n]
  int m, n, k;  // k is a multiple of 8
};

// Of tests/simt/kernels/warpgroup_attend.h: 64 queries for each of `groups` warpgroups times `keys`, a tile of two.
struct AttendShape {
  int dim_qk, dim_vo, groups, keys;

  constexpr abi::MatrixTile queries() const { return abi::in_wide_panels(64 * groups, dim_qk); }
  constexpr abi::MatrixTile keys_tile() const { return abi::in_wide_panels(keys, dim_qk); }
  constexpr abi::MatrixTile values() const { return abi::in_wide_panels(keys, dim_vo); }
  constexpr int rows() const { return 64 * groups; }
  // Of a thread that multiplies: scores, probabilities, outputs, and what the compiler takes beside them. Of shapes
  // with more than `most_registers` it makes code that waits for each product, and spills.
  constexpr int registers() const { return keys / 2 + keys / 4 + dim_vo / 2 + 32; }
  constexpr int most_registers() const { return groups == 2 ? 240 : 160; }
  constexpr int threads() const { return 128 * (groups + 1); }
  constexpr int tile_bytes() const { return queries().bytes() + 2 * (keys_tile().bytes() + values().bytes()); }
  constexpr int shared_bytes() const { return tile_bytes() + 10 * 8; }
};
inline constexpr AttendShape kAttendShapes[] = {{128, 128, 2, 128}, {64, 64, 3, 128},   {80, 80, 3, 112},
                                                {96, 96, 2, 128},   {192, 128, 2, 112}, {192, 192, 2, 96},
                                                {256, 256, 2, 80}};
inline constexpr int kNumAttendShapes = sizeof(kAttendShapes) / sizeof(AttendShape);
struct WarpgroupAttendArgs {
  abi::TensorMap q, k, v;  // [heads][num_queries, dim_qk], [n, dim_qk], [n, dim_vo] in boxes of whole tiles of a head
  float* o;                // [heads][num_queries, dim_vo]
  float* lse;              // [heads][num_queries]
  // Where keys and values are gathered: [heads][n, dim] each, and which row of its head's each key is.
  const void *k_rows, *v_rows;
  const int* row_of_key;
  int num_heads, num_queries, n;
  bool causal;  // query i sees key j iff j <= i + n - num_queries
  float sm_scale;
};

// Of tests/simt/kernels/boxes.h.
inline constexpr int kMostBoxBytes = 32768;
struct BoxArgs {
  abi::TensorMap from, to;  // boxes of the same shape and swizzle
  int from_at[5], to_at[5];
  unsigned* shared;         // [box_bytes() / 4]: the box as it lies in shared memory
  bool prefetches, stores;  // or it only comes to shared memory
};

// Of tests/simt/broken_tensor.cpp.
struct TensorArgs {
  abi::TensorMap map;  // [200, 64] of 16 bits in boxes of [64, 64], swizzled
  unsigned* y;         // [64]
};

// Of tests/simt/broken_ring.cpp.
struct RingArgs {
  const unsigned* x;  // [8, 32]
  unsigned* y;        // [8, 32]
  unsigned* counter;  // [4], 0
};

// Of tests/simt/broken_wgmma.cpp.
struct WarpgroupArgs {
  const float* x;  // [64]
  float* y;        // [256]
};

// Of tests/simt/broken.cpp.
struct BrokenArgs {
  const float* x;  // [64]
  float* y;        // [64]
  unsigned* counter;
};

}  // namespace weft
