// Block-sparse keys: which blocks of a pool each block of query tokens attends. Page tables, prefix trees, tree masks,
// page selections and importance masks are all of this form; there is never a dense mask behind it.
//
//   const BlockLists lists = select_pages(table, qo_indptr, num_kv_heads, selected, budget);   // Quest
//   const BlockSparse blocks = lists.view();
//   Plan plan = kernel.plan({.num_qo_heads = 32, .num_kv_heads = 8, .qo_indptr = qo_indptr, .blocks = &blocks});
//
// The kernel's spec has kv_form = KvForm::block_sparse, and its cache is that of the paged form, a page a block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/attention.h"

namespace weft {

// A request of qo_len query tokens has ceil(qo_len / block_rows) row blocks, the last of them perhaps shorter. Each has
// a list of column blocks of block_cols keys: one for all KV heads, or one for each.
//
// Masks, windows, ALiBi and rotations see positions, never indices. A key's position is its place in the list, and the
// last query token of a request stands at the last position of its lists, unless the two arrays say otherwise. kv_idx
// of a functor is the place in the list.
struct BlockSparse {
  int block_rows = 0, block_cols = 0;           // Br, Bc
  int64_t num_blocks = 0;                       // of the pool: every index is below it
  std::span<const int32_t> block_indptr = {};   // [row blocks + 1], or [num_kv_heads * row blocks + 1], head after head
  std::span<const int32_t> block_indices = {};  // [block_indptr's last entry]
  std::span<const int32_t> last_block_len = {};  // [lists] keys of a list's last block, 1..Bc, 0 without one; empty: Bc
  // [listed blocks], of each one's first key, the others following; or [listed blocks * Bc], of every key.
  std::span<const int32_t> kv_positions = {};
  std::span<const int32_t> q_positions = {};  // [query tokens]
  // [listed blocks] -1: every row sees the whole block; else which Br x Bc bits of `bits` say what its rows see:
  // row-major, little-endian, each block's on bytes of its own. Hidden keys of a listed block must hold finite numbers.
  std::span<const int32_t> bits_index = {};
  std::span<const uint8_t> bits = {};
};

// Owns the arrays of a BlockSparse.
struct BlockLists {
  int block_rows = 0, block_cols = 0;
  int64_t num_blocks = 0;
  std::vector<int32_t> block_indptr{0}, block_indices, last_block_len, kv_positions, q_positions, bits_index;
  std::vector<uint8_t> bits;

  BlockSparse view() const;  // valid as long as this lives, unchanged
};

// All of these throw Error(invalid_argument | invalid_indptr | invalid_shape).

// Every page of every request: what a paged kernel attends.
BlockLists blocks_from_page_table(const PageTableView& pages, std::span<const int32_t> qo_indptr);

// Pages chosen for each request and KV head (Quest): `selected` [batch, num_kv_heads, budget] holds places in the
// request's page table, ascending; -1 ends a shorter choice. Keys keep their positions. A choice must hold the
// request's last page, so that its last token is seen.
BlockLists select_pages(const PageTableView& pages, std::span<const int32_t> qo_indptr, int num_kv_heads,
                        std::span<const int32_t> selected, int budget);

// What select_pages makes of a choice, for one that is made later, and again for every step: `budget` pages for each
// request and KV head, which choose_pages and set_pages (weft/quest.h) write into the uploaded plan. Every request has
// qo_len query tokens. Throws Error(invalid_argument) also where qo_len tokens may lie in more pages than `budget`.
struct PageBudget {
  int batch = 0, qo_len = 1;
  int page_size = 0;
  int64_t num_pages = 0;  // of the pool
  int num_kv_heads = 0, budget = 0;
};
BlockLists pages_to_set(const PageBudget& of);

// Column blocks whose importance is not 0, for each row block of each request: `mask` holds, request after request,
// ceil(qo_len / block_rows) x pages bytes, row-major. Keys keep their positions.
BlockLists blocks_from_importance(const PageTableView& pages, std::span<const int32_t> qo_indptr, int block_rows,
                                  std::span<const uint8_t> mask);

// Speculative decoding: the last qo_len tokens of each request's pages are a tree, and a query token sees the context
// before the tree, its ancestors and itself. `parent` [query tokens]: index within the request, before its own; -1: a
// root. Tokens stand at the position after their parent's.
BlockLists blocks_from_tree(const PageTableView& pages, std::span<const int32_t> qo_indptr,
                            std::span<const int32_t> parent);

}  // namespace weft
