// Arguments of the operators' kernels, for host and kernel alike.
#pragma once

#include "tile/abi/draw.h"

namespace weft::ops {

// Rows of fp32: row i lies at data + i / inner * outer_stride + i % inner * inner_stride, in elements.
struct CardRows {
  float* data;
  long long inner, outer_stride, inner_stride;
};

// y = x * weight / sqrt(mean(x^2) + eps), where a residual is given of residual += x, which is written too.
// `onto`: residual += that instead, and there is no y.
struct NormArgs {
  CardRows x, residual, y;  // data null: not given
  const float* weight;
  long long rows;
  int dim;
  float eps;
  bool onto;
};

inline constexpr int kPieceColumns = 256;  // columns of a row that a warp has at a time, of what is element by element

// y = gate(gate) * up.
struct GateArgs {
  CardRows gate, up, y;
  long long rows;
  int dim;
  bool gelu;  // else silu
};

// x = cap * tanh(x / cap)
struct CapArgs {
  CardRows x;
  long long rows;
  int dim;
  float cap;
};

// x += row, to each row of x.
struct AddRowArgs {
  CardRows x;
  const float* row;
  long long rows;
  int dim;
};

// ids[row]: the first of the row's greatest logits; -1: all are -inf or NaN.
struct GreedyArgs {
  const float* logits;        // [rows, columns]
  unsigned long long* found;  // [rows, parts]: of each CTA
  unsigned* done;             // [rows]: CTAs; 0 before and behind a launch
  int* ids;                   // [rows]
  long long rows;
  int columns, parts;  // parts: CTAs of a row
};
inline constexpr int kGreedyWarps = 8;  // of a CTA
inline constexpr int kGreedySharedBytes = 2 * 8 * kGreedyWarps;

// A token drawn from a row of logits (tile/abi/draw.h), in order of the launch's rows.
struct DrawRow {
  long long row;            // of the logits
  unsigned long long bits;  // random
  tile::DrawRule rule;
  tile::DrawPenalties penalties;
  int first_change, num_changes;
  const unsigned* mask;  // token i may be drawn iff bit i % 32 of word i / 32 is set; null: all
};
// ids[i]: the i-th row's, -1 where nothing can be drawn, which `flag` is told of. The changes are written to the
// logits.
struct DrawArgs {
  float* logits;  // [., columns], rows `stride` apart
  long long stride;
  const DrawRow* rows;
  const tile::LogitChange* changes;
  int* ids;
  unsigned* flag;  // gets the bit; null: nobody is told
  unsigned flag_bit;
  int columns;
};
// Tokens drawn from rows of probabilities, all of whose arrays are on the card (ProbabilityDraws in weft/ops.h).
struct ProbabilityDrawArgs {
  const float* probs;  // [num_rows, columns], rows `stride` apart
  long long stride, num_rows;
  const int* top_k;                // [num_rows]; null: off, as the next two
  const float *top_p, *min_p;      // [num_rows]
  const int* rows;                 // [draws]; null: draw i is of row i
  const unsigned long long* bits;  // [draws]
  int* ids;                        // [draws]
  int columns;
  bool joint;
};
inline constexpr int kDrawWarps = 16;  // of a CTA; those of a cluster share a row
inline constexpr int kDrawBins = 1024, kDrawKeyBins = 256;
inline constexpr int kDrawFew = 256;  // tokens that are ordered by comparing each with each
inline constexpr int kMostDrawCtas = 8;
// Shared memory of a CTA.
struct DrawShared {
  // What this CTA's part of the row adds to bins; sums in two words.
  struct {
    unsigned count[kDrawBins], low[kDrawBins], high[kDrawBins];
  } own;
  // Of the whole row: bins by exponent, and those by 8 bits of the keys of one of them.
  struct {
    unsigned long long sum[kDrawBins];
    unsigned count[kDrawBins];
  } bins;
  struct {
    unsigned long long sum[kDrawKeyBins];
    unsigned count[kDrawKeyBins];
  } key_bins;
  // Few tokens; first those of this CTA's part.
  struct {
    float logit[kDrawFew];
    int id[kDrawFew], weight[kDrawFew];
    unsigned count;
  } few;
  // Slices of the row: their kept weight but for tokens that tie with the last one, and how many these are.
  struct {
    unsigned long long sum[kMostDrawCtas * kDrawWarps];
    unsigned ties[kMostDrawCtas * kDrawWarps];
  } slices, of_warps;
  unsigned long long warp_sums[kDrawWarps], warp_counts[kDrawWarps];
  unsigned long long greatest[kDrawWarps + 1];
  DrawRow row;  // of probabilities, whose filters one thread reads
  // What one thread found for all.
  unsigned long long found_sum;
  unsigned found_count;
  int found;
};

// Pairs of each head are turned by the angle of their row.
struct RotateArgs {
  CardRows x;              // a row and head each
  const float *cos, *sin;  // [rows, pairs]
  long long rows;          // times heads
  int heads, pairs;
  bool halves;  // pairs are (i, i + pairs), else (2i, 2i + 1)
};

// The same with the angles of positions that lie on the card: position times frequency, in double.
inline constexpr int kMostPairs = 288;
struct RotateAtArgs {
  CardRows x;
  const int* positions;
  long long rows;
  int heads, pairs;
  bool halves;
  float factor;              // of cos and sin
  double turns[kMostPairs];  // that a pair makes from one position to the next
};

// Where a token's key and value go.
struct CachePlace {
  int page, slot;
};

// A cache's keys or values; strides in elements. Its scales are there or not.
struct CardCache {
  void* data;
  long long page_stride, slot_stride, head_stride;
  float* scale = nullptr;
  long long scale_page_stride = 0, scale_slot_stride = 0, scale_head_stride = 0;
};

// New keys or values [rows, heads, dim] into their places.
struct AppendArgs {
  CardRows x;  // a row and head each
  const CachePlace* places;
  CardCache to;
  long long rows;  // times heads
  int heads, dim;
  // Places that the host did not see are clamped to the cache's, and the flag becomes 1; null: it has seen them.
  unsigned* clamped;
  int num_pages, page_size;
  int group;  // tokens of a page that share a scale
};

// What becomes of a product with the weights of queries, keys and values: bias, norms and rotation, and then queries to
// their tensor, keys and values into the cache.
struct QkvArgs {
  const float* qkv;              // [rows, q heads, then k heads, then v heads, dim]
  const float* bias;             // of all heads; null: none
  const float *q_norm, *k_norm;  // [dim]; null: none
  const float *cos, *sin;        // [rows, pairs]
  const CachePlace* places;      // [rows]
  void* q;                       // [rows, q heads, dim]
  CardCache k, v;
  long long rows;
  int num_qo_heads, num_kv_heads, dim, pairs;
  float eps;
  bool halves;
};

// One part of a matrix of weights as a card keeps it (ops/cuda/weights.h).
struct WeightPlanes {
  const void *quants, *high, *scales, *supers;
};

// Rows `tokens` of a matrix, or those from first_row on, times a factor.
struct EmbedArgs {
  WeightPlanes w;
  const int* tokens;  // null: rows from first_row on
  long long first_row;
  float* to;  // [rows, cols]
  long long rows, cols;
  float scale;
};

// y = x W^T, rows of x normed first where there is a norm's weight. `add`: y += that.
struct LinearArgs {
  WeightPlanes w;
  const float* x;     // [up to as many rows as the kernel is for, cols]
  const float* norm;  // [cols]
  float* y;
  long long ldx, ldy;  // in elements
  long long outputs;   // columns of y; of a gate half as many as the weights have rows
  int cols, rows;      // of x
  int chunk;           // columns of x that shared memory holds, a multiple of 1,024, or all
  float eps;
  bool add, gelu;
  bool is_aligned;  // x, its rows and the norm's weights to 16 bytes, and cols a multiple of 4
};

// Rows of one type of a matrix in tiles (ops/tiled_matrix.h): its first band, and how to go on. Pieces are those of
// tile/cuda/matvec.h.
struct CardTiles {
  const unsigned char* data;
  long long panel_bytes;     // from a panel of the matrix to the next
  int panels, strip_pieces;  // the latter of a band within a panel
};

// y = x W^T with weights in tiles, rows of x normed first where there is a norm's weight. `add`: y += that.
struct TiledLinearArgs {
  CardTiles w;
  const float* x;     // [up to as many rows as the kernel is for, cols]
  const float* norm;  // [cols]
  float* y;
  long long ldx, ldy;  // in elements
  long long outputs;   // columns of y; of a gate half as many as the weights have rows, a multiple of 16
  int bands;           // of 16 outputs
  int cols, rows;      // of x
  int chunk;           // pieces whose columns of x a warp's shared memory holds
  float eps;
  bool add, gelu;
  bool is_aligned;  // x, its rows and the norm's weights to 16 bytes, and cols a multiple of 4
};

// x of many rows as a sum of `parts` numbers in bf16, one behind the other's rows, normed before where there is a
// norm's weight. Columns from cols to ld of what is made are 0.
struct SplitArgs {
  const float* x;      // [rows, cols]
  const float* norm;   // [cols]
  unsigned short* to;  // [parts, rows, ld]
  long long ldx, ld, rows;
  int cols;
  float eps;
};

// y = x W^T with weights in tiles and x in parts. Chunks of columns are cut into `splits`; of several each leaves sums
// of its own.
struct TiledManyArgs {
  CardTiles w;
  const unsigned short* x;  // [parts, rows, ld]
  float* y;
  float* sums;  // [splits, rows, outputs]; null: one split, which makes y
  long long ld, ldy, rows, outputs;
  int bands, chunks, splits, row_blocks, works;  // the latter what CTAs share
  bool add;
};
// y = the splits' sums in their order. `add`: y += that.
struct SumSplitsArgs {
  const float* sums;
  float* y;
  long long ldy, rows, outputs;
  int splits;
  bool add;
};

// Rows `tokens` of a matrix in tiles, or those from first_row on, times a factor.
struct TiledEmbedArgs {
  CardTiles w;
  const int* tokens;  // null: rows from first_row on
  long long first_row;
  float* to;  // [rows, cols]
  long long rows, cols;
  float scale;
  bool is_aligned;  // `to` to 16 bytes, and cols a multiple of 4
};

}  // namespace weft::ops
