// The leaf: what an attention variant does to a tile of scores and to single vectors. Compiled at run time from the
// variant's text (or built in), called by the CPU core for every score tile. What no variant changes (intervals,
// softmax) is the core's. This header is part of the leaf's text, so it includes nothing.
#pragma once

namespace weft::abi {

// Change when anything in this file changes meaning.
inline constexpr int kLeafVersion = 5;

// Parameters as the host lays them out: slot 0 is sm_scale, then each declared scalar (one slot), then each
// declared tensor (its pointer, then `rank` strides in elements).
union Slot {
  double real;
  float single;  // in the place of `real` for a card's kernels, where conversions wait for products
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

// Rows x columns of scores. Column j is the key with logical index kv_begin + j and position kv_positions[j]; columns
// from num_kv to the next multiple of kColumnStep hold anything.
inline constexpr int kColumnStep = 32;
struct ScoreTile {
  const Slot* params;
  const ScoreRow* rows;
  const int* kv_positions;
  int num_rows, num_kv;
  int kv_begin;
  float* scores;  // in: q . k, unscaled. Out: logits; where the predicate hides a key -inf, without softmax 0
  long long ld;   // row stride of scores, in elements
};

struct VectorRow {
  int batch, idx, pos, head;
  double lse = 0;  // of an output row with softmax
};

// n vectors of dim elements: row i lies at from[i] + offset and becomes that at to + i * ld_to; no row to is a row
// from. Elements are fp32; keys and values that are multiplied in bf16 are read and written in it.
struct VectorTile {
  const Slot* params;
  const VectorRow* rows;
  int n, dim;
  const char* const* from;
  long long offset;  // in bytes
  void* to;
  long long ld_to;  // in elements
};

using ScoreFn = void (*)(const ScoreTile*);
using VectorFn = void (*)(const VectorTile*);
// Changes the lse of n rows.
using LseFn = void (*)(const Slot* params, VectorRow* rows, int n);

// What a leaf module exports, under the name weft_leaf (built-in ones: a table of these).
// A null function means that the variant has no such hook.
struct Leaf {
  int version;
  int use_softmax;
  int has_predicate;  // the variant or the mask hides keys inside its intervals
  ScoreFn score;      // null: logits are the scores times sm_scale, and no key is hidden
  VectorFn query, key, value, output;
  LseFn lse;
};

}  // namespace weft::abi
