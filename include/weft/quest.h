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

// Beside a cache of keys: fp32 or bf16 [pages, num_kv_heads, head_dim] each, last axis contiguous. In bf16 the least is
// rounded down and the largest up, so that bounds stay bounds; keys in bf16 lose nothing.
struct PageSummaries {
  TensorView min, max;
};

// Makes anew the summary of every page that holds one of the last append_indptr[r + 1] - append_indptr[r] tokens of
// request r, from the keys as they are stored (fp32, fp16, bf16; [pages, page_size, num_kv_heads, head_dim] or HND). So
// a page that was cut back, or copied for a fork, is right again once something is appended to it. On the CPU, or all
// on one card. Throws Error(invalid_argument | invalid_indptr | invalid_page | invalid_shape | invalid_dtype |
// invalid_stride | invalid_device).
void update_page_summaries(const TensorView& keys, std::span<const int32_t> append_indptr, const PageTableView& pages,
                           Layout layout, const PageSummaries& summaries, Stream stream = {});
// Updates summaries by rows of keys that went to page places[i, 0], slot places[i, 1], int32 [nnz, 2] beside the keys
// (AttentionKernel::locate_rows writes them): a page's last row says how many of its slots hold keys. On a card it may
// be captured; there a place outside of the cache is clamped, and the next Stream::synchronize() throws
// Error(invalid_page).
void update_page_summaries(const TensorView& keys, const TensorView& places, Layout layout,
                           const PageSummaries& summaries, Stream stream = {});

// The `budget` pages of each request and KV head with the largest bound sum_d max(q_d min_d, q_d max_d), over its query
// tokens and the heads of the group the largest; of equal ones the earlier page. Pages that hold query tokens are
// always chosen, first of all. q [nnz_qo, num_qo_heads, head_dim] fp32, fp16 or bf16, the last qo_len tokens of each
// request; on the CPU.
// Returns [batch, num_kv_heads, budget] places in the request's page table, ascending; -1 ends a shorter choice.
// Throws like update_page_summaries, and Error(invalid_argument) where the query tokens alone fill more pages than
// `budget`.
std::vector<int32_t> choose_pages(const TensorView& q, const PageSummaries& summaries,
                                  std::span<const int32_t> qo_indptr, const PageTableView& pages, int num_kv_heads,
                                  int budget, Stream stream = {});

// Chooses pages by the same bounds on the card, and writes them into an uploaded plan. It reads nothing of the host, so
// choice and attention of a step replay in one graph. A request with fewer pages than the budget attends all of them.
//
//   const BlockLists lists = pages_to_set({.batch = 4, .page_size = 16, .num_pages = pages, .num_kv_heads = 8,
//                                          .budget = 64});                               // weft/block_sparse.h
//   plan.upload(workspace, stream);                                                      // of lists.view(), once
//   const PlannedPages planned = kernel.planned_pages(workspace);
//   Workspace scratch(device, choose_pages_bytes(4, 8, batch.page_table.shape(1)));
//   choose_pages(q, summaries, batch, planned, scratch, stream);                         // each step
//   kernel.run(workspace, tensors, stream);
//
// On a card a length, or a page id, that is out of range is clamped, and the next Stream::synchronize() throws
// Error(invalid_page); a request of fewer tokens than qo_len, as one that fills up a batch, has rows that see nothing.
// Bounds are sums in fp32 in an order of the device's own, so pages whose bounds differ by rounding alone may be chosen
// differently. Summaries on a card have rows that begin on 16 bytes, of a multiple of 8 elements. On the CPU all of it
// is refused at once. Throws Error(plan_mismatch | workspace_too_small) besides, and Error(invalid_argument) where
// qo_len tokens may lie in more pages than the plan's lists have.
void choose_pages(const TensorView& q, const PageSummaries& summaries, const DeviceBatch& batch,
                  const PlannedPages& planned, const Workspace& scratch, Stream stream = {});
// Of `scratch`, which serves calls one behind another; its memory is fresh, or was left by such a call.
size_t choose_pages_bytes(int batch, int num_kv_heads, int64_t most_pages);

// Writes a choice that was made elsewhere into an uploaded plan: selected int32 [batch, num_kv_heads, budget], as
// choose_pages returns it. On a card a place that is out of range or out of order, and a choice without the request's
// last page, are treated like a page id that is out of range.
void set_pages(const TensorView& selected, const DeviceBatch& batch, const PlannedPages& planned, Stream stream = {});

}  // namespace weft
