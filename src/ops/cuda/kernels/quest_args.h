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

// Bounds of pages, and the choice by them: a list's pages are cut among CTAs, and the last one of them that is done
// chooses.
struct ChooseArgs {
  const void* q;  // [batch * qo_len, num_kv_heads * group, dim]; strides in elements
  long long q_row_stride, q_head_stride;
  CardSummaries summaries;
  CardRequests requests;
  CardLists to;
  unsigned* keys;  // [lists, most_pages]: of bounds
  unsigned* done;  // [lists]: CTAs; 0 before and behind a launch
  int group, dim;
  int parts;  // CTAs of a list
};

// Choices that lie on the card.
struct SetPagesArgs {
  const int* selected;  // [batch, num_kv_heads, budget]: places in the request's page table, ascending; -1 ends one
  CardRequests requests;
  CardLists to;
};

inline constexpr int kQuestThreads = 256;
// Words of shared memory for queries, and then for the keys of a list: of as many pages.
inline constexpr int kQuestWords = 8192;
inline constexpr int kChooseSharedBytes = 4 * kQuestWords + 1292;  // of QuestShared
inline constexpr int kTilePages = 32;                              // that a CTA bounds at a time

}  // namespace weft::ops
