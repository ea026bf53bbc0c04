// The dense kernels of one instruction set: packing, products of tiles, and products with keys and values as stored.
// Everything is fp32, or pairs of bf16 where the machine multiplies them; a pair counts as one 4-byte word.
#pragma once

#include "attention/cpu/kernels/prefetcher.h"
#include "attention/cpu/kernels/unit_view.h"
#include "tile/cpu/bf16_tiles.h"
#include "tile/cpu/convert.h"
#include "tile/cpu/int_dot.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// A panel: kPanel columns side by side, two vectors a line. kColumnStep is a multiple.
inline constexpr int kPanel = 2 * kLanes;
static_assert(abi::kColumnStep % kPanel == 0);
// Floats from one panel of `words` lines to the next. The 16 keep lines of neighbouring panels in different cache
// sets, as one token's values are written to all panels at once.
constexpr long long panel_stride(int words) { return static_cast<long long>(words) * kPanel + 16; }

// Rows that one call of the direct kernels works on at once.
inline constexpr int kMostDirectRows = kRegisters == 32 ? 8 : 6;
// Tokens of a tile at most.
inline constexpr int kMostTokens = 256;
// Row stride of scores beside the direct kernels, fixed so that they address all rows from one pointer; the 16
// spread rows over cache sets.
inline constexpr int kDirectLd = kMostTokens + 16;

// A slice is the tokens of a head that the direct kernels work on at once, so many bytes for each tile of rows: shorter
// ones begin and end too often. So many slices stay in the first-level cache.
inline constexpr int kSliceBytes = 4096, kSlicesInCache = 4;
inline constexpr int kSliceTokens = 16;  // or a multiple: whole vectors of scores

// How `accumulate` leaves the columns of each kPanel: as they are stored, the even ones before the odd ones, or of each
// 8 the first 4 before the last 4.
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
  void (*widen_rows)(const char* const* rows, long long offset, int n, int dim, float* out, long long ld);
  bool halves_of_keys;  // queries of `dot` hold the even elements of each kPanel before the odd ones
  ColumnOrder order_of_values;
};
// compute_bf16: keys and queries are multiplied as pairs of bf16.
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
};
// In tiles of registers a is row-major, `words` is a multiple of kLanes, and a is read as far as whole tiles reach: so
// many rows beyond its own.
inline constexpr int kRowsBeyond = 15;
// Tiles of registers that it works on.
int num_register_tiles(int rows, int words, int vectors);
// Beside each, some lines of memory are fetched (Prefetcher::spread), one a step.
void multiply_packed(const Product& product, Words words, Prefetcher& prefetcher);
#if defined(WEFT_HAS_BF16_TILES)
void multiply_in_tiles(const Product& product, Prefetcher& prefetcher);
// The tile registers of this thread, where an item's products use them.
class TilesInUse {
 public:
  explicit TilesInUse(const AttendArgs& args);
  ~TilesInUse();
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;

 private:
  const bool in_use_;
};
#else
struct TilesInUse {
  explicit TilesInUse(const AttendArgs&) {}
};
#endif

// to[row][token] = from[token][row]; `tokens` is a multiple of kLanes, rows of `from` are whole vectors.
void transpose_scores(const float* from, long long ld_from, int num_rows, int tokens, float* to, long long ld);

void softmax(const SoftmaxTile& tile);
// Of a row's maximum: it is subtracted from logits before anything is scaled by log2(e). Beside it the product is
// rounded by so much, or overflows, that 2^(s log2(e) - m log2(e)) is any number at s = m.
inline bool is_far(float m) { return __builtin_fabsf(m) > 65536 && m != -__builtin_inff(); }

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

inline void scale_vector(float* x, long long n, float factor) {
  for (long long i = 0; i < n; ++i) x[i] *= factor;
}

// Of floating types of 16 bits and more; n a multiple of 8.
void convert_to_f32(const char* from, Element element, int n, float* to);
void convert_from_f32(const float* from, int n, char* to, Element element);
// For products in bf16, which take denormals as zero.
void round_to_bf16(const float* from, long long n, unsigned short* to);

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
