// Arguments of Quest's kernels, for host and kernel alike.
#pragma once

#include "ops/cuda/kernels/args.h"

namespace weft::ops {

// Of summaries, 16-byte aligned, the rows too; strides in elements.
struct CardSummaries {
  void *low, *high;
  long long low_page_stride, low_head_stride, high_page_stride, high_head_stride;
};

// Each place is a page and the last of its slots that holds a key. Where the next one is the slot behind it in the same
// page, the page is left to that one.
struct SummariseArgs {
  CardCache keys;
  const CachePlace* places;
  CardSummaries to;
  long long num_places;
  int heads, dim;
  unsigned* clamped;  // as in AppendArgs
  int num_pages, page_size;
};

// Requests whose lengths and pages lie on the card; what is out of range is clamped, and the flag becomes 1.
struct CardRequests {
  const int* kv_len;      // [batch]
  const int* page_table;  // [batch, most_pages]
  long long table_stride;
  int batch, qo_len, most_pages, most_tokens;
  int page_size, num_pages;  // of the pool
  unsigned page_reciprocal;  // 0xffffffff / page_size
  unsigned* clamped;
};

// Where an uploaded plan keeps what is chosen: lists of `budget` pages, [num_kv_heads, batch] of them.
struct CardLists {
  int *page_ids, *positions;  // [lists, budget]
  int* kv_len;                // [batch]
  int* q_positions;           // [batch, qo_len], so many ints apart
  long long q_position_stride;
  int num_kv_heads, budget;
  int hidden_position;  // of the keys of a place that nothing was chosen for
};

// Bounds of pages, and the choice by them. A list's pages are cut among CTAs. From sm_90 on these are a cluster, all of
// which have the keys of all pages, and each of which writes its part of what is chosen; before it the last one that is
// done chooses.
struct ChooseArgs {
  const void* q;  // [batch * qo_len, num_kv_heads * group, dim]; strides in elements
  long long q_row_stride, q_head_stride;
  CardSummaries summaries;
  CardRequests requests;
  CardLists to;
  unsigned* keys;  // [lists, most_pages]: of bounds
  unsigned* done;  // [lists]: CTAs; 0 before and behind a launch
  int group, dim;
  int parts;  // CTAs of a list, which follow each other
};

// Choices that lie on the card.
struct SetPagesArgs {
  const int* selected;  // [batch, num_kv_heads, budget]: places in the request's page table, ascending; -1 ends one
  CardRequests requests;
  CardLists to;
};

inline constexpr int kQuestThreads = 256;
inline constexpr int kMostChooseCtas = 8;  // of a cluster
// Keys of a list that shared memory has room for; of queries, as floats, beside bounds by multiply-adds.
inline constexpr int kKeyWords = 8192, kQueryWords = 2048;
inline constexpr int kMostQuestDim = kQueryWords / 4;  // of as many rows at a time
// Bounds by products of warps: pages of a tile, of which each warp has as many as fit the ring, dims padded to 16.
inline constexpr int kProductPages = 16, kProductRing = 128 << 10, kMostProductDim = 256;
constexpr int product_tile_bytes(int dim) { return 2 * kProductPages * dim * 2; }
constexpr int product_stages(int dim) {
  const int fit = kProductRing / (kQuestThreads / 32 * product_tile_bytes(dim));
  return fit < 4 ? fit : 4;
}
constexpr int product_shared_bytes(int dim) {
  return kQuestThreads / 32 * product_stages(dim) * product_tile_bytes(dim);
}
// Of ChooseShared, beside what bounds take.
constexpr int choose_shared_bytes(int of_bounds) { return of_bounds + 4 * kKeyWords + 1664; }

}  // namespace weft::ops
