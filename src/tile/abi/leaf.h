// The leaf: what an attention variant does to a tile of scores and to single vectors. Compiled at run time from
// the variant's text (or built in), called by the CPU core for every score tile. This header is part of the
// leaf's text, so it includes nothing.
#pragma once

namespace weft::abi {

// Change when anything in this file changes meaning.
inline constexpr int kLeafVersion = 1;

// Parameters as the host lays them out: slot 0 is sm_scale, then each declared scalar (one slot), then each
// declared tensor (its pointer, then `rank` strides in elements).
union Slot {
  double real;
  long long integer;
  const void* pointer;
};

// One fused row (query token x query head) of a tile.
// It sees the keys at positions [lower[0], upper[0]) and [lower[1], upper[1]); an unused interval is empty.
struct ScoreRow {
  int batch, qo_idx, qo_head, kv_head;
  int qo_len, kv_len;
  int q_pos;
  int lower[2], upper[2];
};

// Rows x columns of scores. Column j is the key with logical index kv_begin + j and position
// kv_positions ? kv_positions[j] : kv_pos_begin + j. Columns from num_kv to num_kv_padded (a multiple of
// kColumnStep) hold anything on entry and probability 0 on return.
inline constexpr int kColumnStep = 32;
struct ScoreTile {
  const Slot* params;
  const ScoreRow* rows;
  int num_rows;
  int num_kv, num_kv_padded;
  int kv_begin, kv_pos_begin;
  const int* kv_positions;
  int boundary;                // 0: every row sees every column, and num_kv == num_kv_padded
  float* scores;               // in: q . k, unscaled. Out (fp32 leaf): probabilities, relative to the row's m
  long long ld;                // row stride of scores, in elements
  unsigned short* probs_bf16;  // out (bf16 leaf): the same, rounded
  long long ld_bf16;
  float* m;      // [num_rows] running maximum of the logits, natural; -inf before the first tile
  float* l;      // [num_rows] running sum of exp(logit - m)
  float* alpha;  // [num_rows] out: factor for what was accumulated before; 1 without softmax
};

struct VectorRow {
  int batch, idx, pos, head;
};

// n vectors of dim elements, row i at x + i * ld, transformed in place; scratch holds dim elements.
struct VectorTile {
  const Slot* params;
  const VectorRow* rows;
  int n, dim;
  float* x;
  long long ld;
  float* scratch;
};

using ScoreFn = void (*)(const ScoreTile*);
using VectorFn = void (*)(const VectorTile*);

// What a leaf module exports, under the name weft_leaf (built-in ones: a table of these).
// A null function means that the variant has no such hook.
struct Leaf {
  int version;
  int use_softmax;
  int has_predicate;  // the variant or the mask hides keys inside its intervals
  ScoreFn score;      // compute fp32: probabilities into scores; compute bf16: into probs_bf16
  VectorFn query, key, value, output;
};

}  // namespace weft::abi
