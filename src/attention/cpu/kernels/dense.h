// The dense kernels of one instruction set: packing, products of tiles, and products with keys and values as stored.
// Everything is fp32, or pairs of bf16 where the machine multiplies them; a pair counts as one 4-byte word.
#pragma once

#include "attention/cpu/kernels/prefetcher.h"
#include "tile/cpu/convert.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// A panel: kPanel columns side by side, two vectors a line. kColumnStep is a multiple.
inline constexpr int kPanel = 2 * kLanes;
static_assert(abi::kColumnStep % kPanel == 0);
// Floats from one panel of `words` lines to the next. The 16 keep lines of neighbouring panels in different cache
// sets, as one token's values are written to all panels at once.
constexpr long long panel_stride(int words) { return static_cast<long long>(words) * kPanel + 16; }

// Rows that one call of the direct kernels works on at once.
inline constexpr int kMostDirectRows = kRegisters == 32 ? 8 : 6;
// Row stride of scores beside the direct kernels, fixed so that they address all rows from one pointer; the 16
// spread rows over cache sets.
inline constexpr int kDirectTokens = 256;
inline constexpr int kDirectLd = kDirectTokens + 16;

// A slice is the tokens of a head that the direct kernels work on at once, so many bytes for each tile of rows: shorter
// ones begin and end too often. So many slices stay in the first-level cache.
inline constexpr int kSliceBytes = 4096, kSlicesInCache = 4;

constexpr int round_up(int n, int step) { return (n + step - 1) / step * step; }
constexpr int min_of(int a, int b) { return a < b ? a : b; }
constexpr int max_of(int a, int b) { return a > b ? a : b; }

// How `accumulate` leaves the columns of each kPanel: as they are stored, the even ones before the odd ones, or of each 8
// the first 4 before the last 4.
enum class ColumnOrder { stored, halves, fours };

// Kernels that read keys and values as they are stored. `rows[t] + offset` is token t. n is a multiple of kPanel
// unless said otherwise.
struct Loader {
  // out: panels of kPanel tokens, each [words of dim][kPanel].
  void (*pack_keys)(const char* const* rows, long long offset, int n, int dim, float* out);
  // out: panels of kPanel dims, each [words of n][kPanel]; columns from dim on are zero.
  void (*pack_values)(const char* const* rows, long long offset, int n, int dim, float* out);
  // scores[m * kDirectLd + t] = q[m] . row t, for n tokens (a multiple of kLanes); q as pack_direct_query lays it.
  // Fetches as many bytes ahead as it reads.
  void (*dot)(const char* const* rows, long long offset, int n, Prefetcher& prefetcher, const float* q, int num_rows,
              int dim, float* scores);
  // o[m * ld + d] += the sum over any n tokens of p[m * kDirectLd + t] * value; in bf16 p is rounded, a pair a word of
  // which there are half as many, and a token that the last pair holds beyond n is hidden. Fetches likewise.
  void (*accumulate)(const char* const* rows, long long offset, int n, Prefetcher& prefetcher, const float* p,
                     int num_rows, int dim, float* o, long long ld);
  // out[t * ld ...] = token t in fp32, any n.
  void (*widen_rows)(const char* const* rows, long long offset, int n, int dim, Prefetcher::Next next, float* out,
                     long long ld);
  bool halves_of_keys;  // queries of `dot` hold the even elements of each kPanel before the odd ones
  ColumnOrder order_of_values;
};
// of_dot_bf16: keys and queries are multiplied as pairs of bf16.
const Loader& loader_for(Element element, bool compute_bf16);

// c[rows][columns] = a . b, or alpha[row] * c + a . b where alpha is given. a is row-major with `words` in use, or
// panels of [rows][kPanel] words, `a_stride` floats apart, as pack_values lays them. b is panels of [words][kPanel],
// `stride` floats apart; where the number of vectors is odd, the last panel has one.
struct Product {
  const float* a;
  long long lda, a_stride;  // a_stride 0: a is row-major
  const float* b;
  long long stride;
  int words;
  float* c;
  long long ldc;
  const float* alpha;
  int rows, vectors;
  Prefetcher* prefetcher;  // of which so many lines are fetched beside each tile of registers, one a step
  int prefetch_lines;
};
// Tiles of registers that `multiply` works on.
int num_micro_tiles(int rows, int words, int vectors);
void multiply(const Product& product, bool bf16);

// to[row][token] = from[token][row]; `tokens` is a multiple of kLanes, rows of `from` are whole vectors.
void transpose_scores(const float* from, long long ld_from, int num_rows, int tokens, float* to, long long ld);

void softmax(const SoftmaxTile& tile);

// ---- integer keys and values (split_int8.cpp): a word is 4 bytes, a row of the other side two signed bytes a number.

#if defined(WEFT_HAS_BYTE_DOT)
inline constexpr bool kHasByteDot = true;
#else
inline constexpr bool kHasByteDot = false;  // the functions below are not there
#endif
// Splits n numbers (a multiple of kLanes), each times its factor where factors are given, into signed bytes: they are
// scale times 256 high + low, at most `most` in all; `sum` is that of the integers. NaN or Inf: scale is NaN.
void split_int8(const float* x, int n, const float* factors, int most, unsigned* split, float& scale, int& sum);
inline constexpr int kMostSplit = 32512;  // keeps the high byte below 128
// Where the low bytes of a row begin, and the next row, in words: fixed, so that products address all rows from one
// pointer.
inline constexpr int kSplitLow = kMaxHeadDim / 4, kSplitLd = 2 * kSplitLow;
static_assert(kDirectTokens / 4 <= kSplitLow);
// So that sums of `n` products with bytes fit 32 bits.
constexpr int most_split(int n) { return min_of(kMostSplit, 0x7fffffff / (128 * n)); }
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
// c[rows][columns] = scales[row] * column_scales[column] * (a . b), or that and alpha[row] * c. A row of a is words of
// high bytes, and kSplitLow words later those of low ones; b holds stored numbers and `offset` more, `sums` are those of
// a's rows. Where c_sums is given, a . b alone is added there, offset and all, modulo 2^32.
struct Int8Product {
  const unsigned* a;
  const int* sums;
  const float* scales;
  const unsigned* b;
  long long stride;
  int words;
  unsigned offset;
  const float* column_scales;  // or null
  float* c;
  long long ldc;
  const float* alpha;  // or null
  int* c_sums;         // or null; rows as c's
  int rows, panels;
  int lines;  // of memory to fetch ahead beside every other word of a panel
};
void multiply_int8(const Int8Product& product, Prefetcher& prefetcher);
// c[n] = alpha * c + scale * (sums - offset), and zeros for sums.
void finish_int8(int* sums, int n, unsigned offset, float scale, float alpha, float* c);

// Query rows for `dot`: tiles of rows as direct_rows cuts them, each [words / kLanes][rows][kLanes], a word being an
// element in fp32 or a pair of bf16; `halves` as of Loader. Lanes behind the last word are zero.
void pack_direct_query(const float* q, long long ld, int num_rows, int words, bool halves, int dim, float* out);
// Rows of the next tile when `left` rows are left.
constexpr int direct_rows(int left) {
  if (left <= kMostDirectRows) return left;
  const int tiles = (left + kMostDirectRows - 1) / kMostDirectRows;
  return (left + tiles - 1) / tiles;
}
// Floats of one packed row.
constexpr int direct_query_size(int dim) { return round_up(dim, 2 * kLanes); }

// Of floating types of 16 bits and more; n a multiple of 8.
void convert_to_f32(const char* from, Element element, int n, float* to);
void convert_from_f32(const float* from, int n, char* to, Element element);
// For products in bf16, which take denormals as zero.
void round_to_bf16(const float* from, long long n, unsigned short* to);

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
