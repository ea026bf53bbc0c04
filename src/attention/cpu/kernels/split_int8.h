// Integer products of one instruction set: rows of 16-bit integers, each split into two signed bytes, times bytes.
#pragma once

#include "attention/cpu/kernels/dense.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

#if defined(WEFT_HAS_BYTE_DOT)
inline constexpr bool kHasByteDot = true;
#else
inline constexpr bool kHasByteDot = false;  // the functions below are not there
#endif

// Tokens of a slice, for few rows: sums are stored once a slice.
inline constexpr int kInt8SliceTokens = 64;
inline constexpr int kMostSplit = 32512;  // keeps the high byte below 128
// In words, where the low bytes of a row begin, and the next row: fixed, so that products address all rows from one
// pointer.
inline constexpr int kSplitLow = kMaxHeadDim / 4, kSplitLd = 2 * kSplitLow;
static_assert(kMostTokens / 4 <= kSplitLow);
// So that sums of `n` products with bytes fit 32 bits.
constexpr int most_split(int n) { return min_of(kMostSplit, 0x7fffffff / (128 * n)); }

// Row r is scales[r] times integers 256 high + low, whose sum is sums[r]: words of high bytes from r * kSplitLd on, of
// low bytes kSplitLow later.
struct SplitRows {
  unsigned* words;
  float* scales;
  int* sums;
  SplitRows at(long long row, int word = 0) const { return {words + row * kSplitLd + word, scales + row, sums + row}; }
};

// Splits a row of n numbers (a multiple of kLanes), each times its factor where factors are given. Integers are at most
// `most`. NaN or Inf: the scale is NaN.
void split_int8(const float* x, int n, const float* factors, int most, const SplitRows& row);
// A query in the order of the words of keys.
void order_query(const float* q, int dim, Element element, float* out);
// Columns of panels of values, dim and more; puts those of each row of an output into the order of the head.
int value_columns(Element element, int dim);
void order_int8_values(Element element, int dim, float* o, long long ld, int rows);
// As of Loader; n a multiple of kPanel.
void pack_int8_keys(Element element, const char* const* rows, long long offset, int n, int dim, unsigned* out,
                    Prefetcher& prefetcher);
void pack_int8_values(Element element, const char* const* rows, long long offset, int n, int dim, unsigned* out,
                      Prefetcher& prefetcher);

// What packed bytes are above the numbers that are stored.
constexpr unsigned stored_offset(Element element) { return element == Element::int4 ? 8 : 128; }
// a . b, b in panels of [words][kPanel] `stride` words apart.
struct Int8Product {
  SplitRows a;
  const unsigned* b;
  long long stride;
  int words;
  Element element;  // of b
  int rows, panels;
};
// c[row][column] = scales[row] * column_scales[column] * (a . b); column_scales may be null.
void multiply_int8_keys(const Int8Product& product, const float* column_scales, float* c, long long ldc,
                        Prefetcher& prefetcher);
// sums[row][column] += a . b, stored_offset and all, modulo 2^32.
void multiply_int8_values(const Int8Product& product, int* sums, long long ld, Prefetcher& prefetcher);
// c[n] = alpha * c + the row's scale * the sums without their offset.
void add_int8_sums(const int* sums, int n, const SplitRows& row, Element element, float alpha, float* c);

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
