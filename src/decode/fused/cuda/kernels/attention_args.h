// What attention of a step takes, for host and kernel alike: its items, how heads come about from the sums of a
// product, and how an entry of the ring holds an item's keys and values.
#pragma once

#include "decode/fused/item_rows.h"
#include "ops/cuda/kernels/args.h"

namespace weft::decode::fused {

// What one warp attends at a time: rows of one request and a KV head, over tokens that lie in one entry of the ring.
struct CardItem {
  int row_begin = 0, row_end = 0;  // of the step
  int first_row = 0;               // of the step: the request's first one
  int kv_head = 0;
  int kv_begin = 0, kv_end = 0;  // tokens of the request, the last one that a row sees included: rows of the entry
  int first_seen = 0;            // token: what lies before it no row sees, and nobody copies
  int cached = 0;                // tokens of the request that lie in the cache; those behind are this step's rows
  int first_page = 0;            // of the request, among the step's pages
  int first_state = 0;           // [rows, query heads of the KV head]
  // Among the heads of its round (CardRound): [rows, query heads of the KV head], and [own tokens, key and value].
  int first_query = 0, first_own = 0;

  constexpr int tokens() const { return kv_end - kv_begin; }
  // Tokens [copy_begin, copy_end) come from the cache.
  constexpr int copy_begin() const { return first_seen; }
  constexpr int copy_end() const {
    const int end = cached < kv_end ? cached : kv_end;
    return end > first_seen ? end : first_seen;
  }
  // Tokens [own_begin, kv_end) come from the step's own sums.
  constexpr int own_begin() const {
    const int begin = cached > kv_begin ? cached : kv_begin;
    return begin > first_seen ? begin : first_seen;
  }
};
static_assert(sizeof(CardItem) == 48);

// A head of a row that items of a worker need: a query, or a key or value of the step's own.
struct CardHead {
  int row = 0;              // of the step
  int head = 0;             // among those of queries, then keys, then values
  int page = -1, slot = 0;  // where the cache has it; page -1: it is not for the cache, or another item puts it there
};
static_assert(sizeof(CardHead) == 16);

// Items that a worker runs at once: first all its warps make their heads, each once for as many items as need it, then
// each item is run by a warp. A round ends where the next one of its worker begins, or the next worker's first.
struct CardRound {
  int item = 0, head = 0;  // its first ones
};

// Heads of a round at most, of steps of so many rows: those of any item, and of a few of one KV head.
constexpr int most_heads(int rows, int group) {
  const int queries = rows * group < kItemRows ? rows * group : kItemRows, heads = queries + 2 * rows;
  return heads < 16 ? 16 : heads;
}

// An entry: a row for each token's key, then for each token's value. Heads of a round lie in as many rows. Rows are 16
// bytes longer than their elements, so that eight at one column lie in different banks.
constexpr int entry_row_bytes(int head_dim) { return 2 * head_dim + 16; }
constexpr int item_entry_bytes(int tokens, int head_dim) { return 2 * tokens * entry_row_bytes(head_dim); }
// That the producer copies.
constexpr unsigned item_copy_bytes(const CardItem& item, int head_dim) {
  return static_cast<unsigned>(item.copy_end() - item.copy_begin()) * 4 * static_cast<unsigned>(head_dim);
}

// How heads of queries, keys and values come about from the sums of their product, whose columns are all query heads,
// then all key heads, then all value heads. Of a layer.
struct HeadArgs {
  const int* first_slot = nullptr;  // [panels * bands + 1]: of each panel and band
  int panels = 1, bands = 0;
  int rows = 0;  // of a slot: its cells are [rows, 16]
  int num_qo_heads = 0, num_kv_heads = 0;
  const float* bias = nullptr;                       // of all columns; null: none
  const float *q_norm = nullptr, *k_norm = nullptr;  // [head_dim]; null: none
  float eps = 0;                                     // of the norms
  const float *cos = nullptr, *sin = nullptr;        // [rows of the step, pairs]
  int pairs = 0;                                     // even, at most head_dim / 2; 0: nothing turns
  bool halves = false;                               // pairs are (i, i + pairs), else (2i, 2i + 1)
};

// Of a layer, but for the pages.
struct AttendArgs {
  HeadArgs heads;
  ops::CardCache k, v;         // no scales; every token's head begins at a multiple of 16 bytes
  const int* pages = nullptr;  // of the step's requests, one behind the other
  int page_size = 0;
  float scale = 0, soft_cap = 0;  // of logits; cap 0: none
  int window = 0;                 // tokens that a row sees, its own included; 0: all
};

// States of a row and KV head: states [indptr[row * num_kv_heads + kv_head], [.. + 1]), in the order of their keys, are
// those of its first query head. The next one's follow them.
struct MergeArgs {
  const int *state_indptr = nullptr, *states = nullptr;
  int rows = 0;  // of an attended cell: [rows, 16]
  int num_qo_heads = 0, num_kv_heads = 0, head_dim = 0;
  float scale = 0, soft_cap = 0;
};

}  // namespace weft::decode::fused
