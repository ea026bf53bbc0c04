// Quest as a backend gets it: checked, the same for every device.
#pragma once

#include <cstdint>
#include <span>

#include "ops/append.h"
#include "weft/attention.h"
#include "weft/quest.h"
#include "weft/tensor.h"

namespace weft::ops {

// Of the keys of a place in a list that nothing was chosen for: behind every key that there is.
inline constexpr int32_t kHiddenPosition = 1 << 30;

// A page of which slots 0 to last_slot hold keys.
struct FilledPage {
  int32_t page, last_slot;
};

// Summaries of some pages, made anew.
struct SummaryCall {
  CacheRows keys;
  DType dtype = DType::fp32;  // of keys
  PageSummaries summaries;
  std::span<const FilledPage> pages;
  TensorView places;  // instead, on cards: page and slot of each new row
  int page_size = 0;
};

// Lists of a plan that are set.
struct PlannedCall {
  const DeviceBatch& batch;
  const PlannedPages& to;

  int64_t num_requests() const { return batch.kv_len.shape(0); }
  int64_t most_pages() const { return batch.page_table.shape(1); }
  int64_t num_kv_heads() const { return to.page_ids.shape(0); }
  int64_t budget() const { return to.page_ids.shape(2); }
  int64_t most_tokens() const;  // of a request
};
// By bounds: q [batch * qo_len, num_qo_heads, dim].
struct ChooseCall : PlannedCall {
  TensorView q;
  PageSummaries summaries;
  const Workspace& scratch;
};
// By somebody else: selected [batch, num_kv_heads, budget].
struct SetPagesCall : PlannedCall {
  TensorView selected;
};

}  // namespace weft::ops
