// Quest (Tang et al., 2024): each step attends the pages that may matter most to its queries, a fixed number of them,
// so that attention takes the same time however long the context. A page's summary, the least and largest element of
// each channel of its keys, bounds q . k for all of its keys from above.
//
//   append_paged_kv(k, v, append_indptr, pages, layout, cache);                             // once a step and layer
//   update_page_summaries(cache.k, append_indptr, pages, layout, summaries);
//   selected = choose_pages(q, summaries, qo_indptr, pages, num_kv_heads, budget);
//   BlockLists lists = select_pages(pages, qo_indptr, num_kv_heads, selected, budget);      // weft/block_sparse.h
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/attention.h"
#include "weft/device.h"
#include "weft/tensor.h"

namespace weft {

// Beside a cache of keys: fp32 [pages, num_kv_heads, head_dim] each, last axis contiguous.
struct PageSummaries {
  TensorView min, max;
};

// Makes anew the summary of every page that holds one of the last append_indptr[r + 1] - append_indptr[r] tokens of
// request r, from the keys as they are stored (fp32, fp16, bf16; [pages, page_size, num_kv_heads, head_dim] or HND). So
// a page that was cut back, or copied for a fork, is right again once something is appended to it.
// Throws Error(invalid_argument | invalid_indptr | invalid_page | invalid_shape | invalid_dtype | invalid_stride).
void update_page_summaries(const TensorView& keys, std::span<const int32_t> append_indptr, const PageTableView& pages,
                           Layout layout, const PageSummaries& summaries, Stream stream = {});

// The `budget` pages of each request and KV head with the largest bound sum_d max(q_d min_d, q_d max_d), over its query
// tokens and the heads of the group the largest; of equal ones the earlier page. Pages that hold query tokens are
// always chosen, first of all. q [nnz_qo, num_qo_heads, head_dim] fp32, the last qo_len tokens of each request.
// Returns [batch, num_kv_heads, budget] places in the request's page table, ascending; -1 ends a shorter choice.
// Throws like update_page_summaries, and Error(invalid_argument) where the query tokens alone fill more pages than
// `budget`.
std::vector<int32_t> choose_pages(const TensorView& q, const PageSummaries& summaries,
                                  std::span<const int32_t> qo_indptr, const PageTableView& pages, int num_kv_heads,
                                  int budget, Stream stream = {});

}  // namespace weft
