// PlanMode::even from lengths that only the card knows: the bytes that the planner would upload. Every CTA knows all
// shares, and writes a part of each section.
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
        shares_(args) {}

  WEFT_INLINE void run() {
    shares_.lay();
    even::place_sections(args_, shares_);
    const int warp = ptx::cta_index() * kWarps + ptx::warp(), num_warps = ptx::num_ctas() * kWarps;
    WEFT_NO_UNROLL
    for (int w = warp; w < workers_; w += num_warps) write_worker(w);
    const int parts = num_warps > requests_ ? num_warps / requests_ : 1;
    WEFT_NO_UNROLL
    for (int i = warp; i < requests_ * parts; i += num_warps) write_page_ids(i / parts, i % parts, parts);
    WEFT_NO_UNROLL
    for (int r = index(); r < requests_; r += stride()) write_request(r);
    if (ptx::cta_index() == 0) even::write_header(args_.workspace);
  }

 private:
  static constexpr int kWarps = kEvenThreads / 32;
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

  // By a warp: an item a lane.
  WEFT_INLINE void write_worker(int worker) const {
    const int begin = shares_.items_before(worker), n = shares_.items_before(worker + 1) - begin;
    WEFT_NO_UNROLL
    for (int own = ptx::lane(); own < n; own += 32) write_item(worker, begin, own, n);
    if (ptx::lane() > 0) return;
    to<int>(placed().worker_indptr)[worker] = begin;
    if (worker == workers_ - 1) to<int>(placed().worker_indptr)[workers_] = begin + n;
    if (n > 0) return;
    ItemRecord none = {};
    none.next = -1;
    to<ItemRecord>(placed().records)[worker] = none;
  }

  // A worker's n items begin with the item `begin`; this is the one behind `own` of them.
  WEFT_INLINE void write_item(int worker, int begin, int own, int n) const {
    const even::Shared& s = even::shared();
    const EvenBorder from = s.borders[worker], until = s.borders[worker + 1];
    const int unit = from.unit + own;
    const int given = own == 0 ? from.granules : 0;  // of the unit, to workers before
    const int kv_len = shares_.length_of(unit / plan_.num_kv_heads);
    const even::Keys keys = even::keys_of(plan_, batch_.qo_len, kv_len);
    const bool last = unit != until.unit;
    const even::Shares::Cuts cuts = shares_.cuts_of(unit, worker, given > 0, !last);
    const int chunk = given > 0 ? s.cuts[worker] - cuts.before : 0;
    const bool open = last && keys.end == kv_len && keys.begin < keys.end;
    const WorkItem item = {unit, given > 0 ? even_cut(keys.begin, given, batch_.granule) : keys.begin,
                           open   ? kOpenEnd
                           : last ? keys.end
                                  : even_cut(keys.begin, until.granules, batch_.granule),
                           cuts.count > 0 ? cuts.first_partial + chunk : -1};
    to<WorkItem>(placed().items)[begin + own] = item;
    if (item.partial >= 0) {
      to<Partial>(placed().partials)[item.partial] = {item.partial * even::partial_floats_of(args_), unit, 0};
      to<MergeSource>(placed().merge_sources)[item.partial] = {item.partial, 0};
    }
    // Its record: the worker's own, or one of those that are no worker's first.
    const int rest = workers_ + begin - s.busy[worker];
    to<ItemRecord>(placed().records)[own == 0 ? worker : rest + own - 1] =
        record_of(unit, item, cuts, chunk, own + 1 < n ? rest + own : -1);
    if (given == 0) write_unit(unit, cuts);
  }

  WEFT_INLINE void write_unit(int u, const even::Shares::Cuts& cuts) const {
    const int request = u / plan_.num_kv_heads, head = u % plan_.num_kv_heads;
    const int row = request * batch_.qo_len;
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
    WEFT_NO_UNROLL
    for (int i = 0; i < batch_.qo_len; ++i)
      to<PlanRow>(placed().rows)[row + i] = {row + i, r, i, kv_len - batch_.qo_len + i};
    to<PageList>(placed().page_lists)[r] = {
        even::shared().pages_before[r], 0, -1, r, 0, row, row + batch_.qo_len, 0, plan_.num_kv_heads};
    to<int>(placed().qo_len)[r] = batch_.qo_len;
    to<int>(placed().kv_len)[r] = kv_len;
  }

  // Of a request, one of so many parts, by a warp.
  WEFT_INLINE void write_page_ids(int r, int part, int parts) const {
    const int first = even::shared().pages_before[r], n = even::shared().pages_before[r + 1] - first;
    const int most = static_cast<int>(plan_.num_pool_pages) - 1;
    WEFT_NO_UNROLL
    for (int i = part * 32 + ptx::lane(); i < n; i += parts * 32) {
      const int given = batch_.page_table[r * batch_.page_table_stride + i];
      if (given < 0 || given > most) ptx::atomic_or(args_.flag, 1);
      to<int>(placed().page_indices)[first + i] = given < 0 ? 0 : given > most ? most : given;
    }
  }

  const EvenArgs& args_;
  const EvenBatch& batch_;
  const PlanHeader& plan_;
  const int requests_, workers_;
  const even::Shares shares_;
};

}  // namespace weft::attention::cuda
