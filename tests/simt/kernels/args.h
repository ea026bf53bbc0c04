// Arguments of the kernels here, for host and kernel alike.
#pragma once

#include "tile/abi/leaf.h"

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

inline constexpr int kInstructionWords = 64;  // that every lane tells
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
struct PersistentArgs {
  const unsigned* x;          // [CTAs, kRingBytes / 4]
  unsigned* y;                // [CTAs, 256]
  unsigned* counters;         // [CTAs], 0
  unsigned long long* words;  // [CTAs, 4], 0
};

// Of tests/simt/broken_ring.cpp.
struct RingArgs {
  const unsigned* x;  // [8, 32]
  unsigned* y;        // [8, 32]
  unsigned* counter;  // [4], 0
};

// Of tests/simt/broken.cpp.
struct BrokenArgs {
  const float* x;  // [64]
  float* y;        // [64]
  unsigned* counter;
};

}  // namespace weft
