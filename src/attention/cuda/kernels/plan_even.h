// PlanMode::even from lengths that only the card knows: the bytes that the planner would upload. Every CTA knows all shares, and
// writes a part of each section.
#pragma once

#include "attention/cuda/kernels/even/sections.h"

namespace weft::attention::cuda {

class PlanEven {
 public:
  static constexpr int kSharedBytes = sizeof(even::Shared);

  WEFT_INLINE explicit PlanEven(const EvenArgs& args)
      : args_(args),
        batch_(args.batch),
        plan_(args.header),
        requests_(plan_.num_requests),
        workers_(plan_.num_workers),
        units_(requests_ * plan_.num_kv_heads),
        shares_(args) {}

  WEFT_INLINE void run() {
    shares_.lay();
    even::place_sections(args_, shares_);
    write_workers();
    for (int i = index(); i < shares_.num_items(); i += stride()) write_item(i);
    for (int u = index(); u < units_; u += stride()) write_unit(u);
    for (int r = index(); r < requests_; r += stride()) write_request(r);
    for (int r = ptx::cta_index(); r < requests_; r += ptx::num_ctas()) write_page_ids(r);
    if (ptx::cta_index() == 0) even::write_header(args_.workspace);
  }

 private:
  WEFT_INLINE static int index() { return ptx::cta_index() * kEvenThreads + ptx::thread_index(); }
  WEFT_INLINE static int stride() { return ptx::num_ctas() * kEvenThreads; }
  WEFT_INLINE static const PlanHeader& placed() { return even::shared().header; }
  template <class T>
  WEFT_INLINE T* to(const Section& s) const {
    return section<T>(args_.workspace, s);
  }

  WEFT_INLINE ItemRecord record_of(int unit, const WorkItem& item, const even::Shares::Cuts& cuts, int chunk,
                                   int next) const {
    const int request = unit / plan_.num_kv_heads, head = unit % plan_.num_kv_heads,
              kv_len = shares_.length_of(request);
    const bool cut = cuts.count > 0;
    ItemRecord record = {};
    record.next = next;
    record.tile_kind = batch_.tile_kind;
    record.kv_head_begin = head;
    record.kv_head_end = head + 1;
    record.row_begin = record.q_row = request * batch_.qo_len;
    record.num_rows = record.qo_len = batch_.qo_len;
    record.request = request;
    record.kv_begin = item.kv_begin;
    record.kv_end = item.kv_end;
    record.first = even::shared().pages_before[request];
    record.partial = cut ? item.partial * even::partial_floats_of(args_) : -1;
    record.chunk = chunk;
    record.num_chunks = cuts.count + 1;
    record.merge_begin = cut ? cuts.group : 0;
    record.merge_rows = record.merge_heads = cut;
    record.num_page_ids = shares_.num_pages(kv_len);
    return record;
  }

  WEFT_INLINE void write_item(int i) const {
    const even::Shared& s = even::shared();
    int worker = 0, high = workers_ - 1;  // the one whose items hold i
    while (worker < high) {
      const int middle = (worker + high + 1) / 2;
      if (shares_.items_before(middle) <= i)
        worker = middle;
      else
        high = middle - 1;
    }
    const EvenBorder from = s.borders[worker], until = s.borders[worker + 1];
    const int own = i - shares_.items_before(worker), unit = from.unit + own;
    const int given = own == 0 ? from.granules : 0;  // of the unit, to workers before
    const int kv_len = shares_.length_of(unit / plan_.num_kv_heads);
    const even::Keys keys = even::keys_of(plan_, batch_.qo_len, kv_len);
    const even::Shares::Cuts cuts = shares_.cuts_of(unit);
    const int chunk = given > 0 ? s.cuts[worker] - cuts.before : 0;
    const bool last = unit != until.unit;
    const bool open = last && keys.end == kv_len && keys.begin < keys.end;
    const WorkItem item = {unit, given > 0 ? even_cut(keys.begin, given, batch_.granule) : keys.begin,
                           open   ? kOpenEnd
                           : last ? keys.end
                                  : even_cut(keys.begin, until.granules, batch_.granule),
                           cuts.count > 0 ? cuts.first_partial + chunk : -1};
    to<WorkItem>(placed().items)[i] = item;
    if (item.partial >= 0) {
      to<Partial>(placed().partials)[item.partial] = {item.partial * even::partial_floats_of(args_), unit, 0};
      to<MergeSource>(placed().merge_sources)[item.partial] = {item.partial, 0};
    }
    // Its record: the worker's own, or one of those that are no worker's first.
    const int rest = workers_ + shares_.items_before(worker) - s.busy[worker];
    const int next = i + 1 < shares_.items_before(worker + 1) ? rest + own : -1;
    to<ItemRecord>(placed().records)[own == 0 ? worker : rest + own - 1] = record_of(unit, item, cuts, chunk, next);
  }

  WEFT_INLINE void write_workers() const {
    for (int w = index(); w <= workers_; w += stride()) {
      to<int>(placed().worker_indptr)[w] = shares_.items_before(w);
      if (w == workers_ || shares_.items_before(w) < shares_.items_before(w + 1)) continue;
      ItemRecord none = {};
      none.next = -1;
      to<ItemRecord>(placed().records)[w] = none;
    }
  }

  WEFT_INLINE void write_unit(int u) const {
    const int request = u / plan_.num_kv_heads, head = u % plan_.num_kv_heads;
    const int row = request * batch_.qo_len;
    const even::Shares::Cuts cuts = shares_.cuts_of(u);
    const int cut = cuts.count > 0;
    to<Unit>(placed().units)[u] = {
        row, row + batch_.qo_len, head, head + 1, request, batch_.tile_kind, cut ? cuts.group : 0, cut, cut};
    if (!cut) return;
    const int n = cuts.count + 1;
    to<MergeGroup>(placed().merge_groups)[cuts.group] = {
        row, row + batch_.qo_len, head, head + 1, cuts.first_partial, cuts.first_partial + n, n, cuts.group};
    to<int>(placed().counters)[cuts.group] = 0;
  }

  WEFT_INLINE void write_request(int r) const {
    const int kv_len = shares_.length_of(r), row = r * batch_.qo_len;
    for (int i = 0; i < batch_.qo_len; ++i)
      to<PlanRow>(placed().rows)[row + i] = {row + i, r, i, kv_len - batch_.qo_len + i};
    to<PageList>(placed().page_lists)[r] = {
        even::shared().pages_before[r], 0, -1, r, 0, row, row + batch_.qo_len, 0, plan_.num_kv_heads};
    to<int>(placed().qo_len)[r] = batch_.qo_len;
    to<int>(placed().kv_len)[r] = kv_len;
  }

  WEFT_INLINE void write_page_ids(int r) const {
    const int first = even::shared().pages_before[r], n = even::shared().pages_before[r + 1] - first;
    const int most = static_cast<int>(plan_.num_pool_pages) - 1;
    for (int i = ptx::thread_index(); i < n; i += kEvenThreads) {
      const int given = batch_.page_table[r * batch_.page_table_stride + i];
      if (given < 0 || given > most) ptx::atomic_or(args_.flag, 1);
      to<int>(placed().page_indices)[first + i] = given < 0 ? 0 : given > most ? most : given;
    }
  }

  const EvenArgs& args_;
  const EvenBatch& batch_;
  const PlanHeader& plan_;
  const int requests_, workers_, units_;
  const even::Shares shares_;
};

}  // namespace weft::attention::cuda
