// PlanMode::even from lengths that only the card knows: the bytes that the planner would upload. Every CTA lays the whole line
// in its shared memory, where it costs as little as asking another one, and writes a share of each section.
#pragma once

#include "attention/cuda/kernels/even_args.h"
#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::attention::cuda {

// Keys that some row of a request sees, from the first to the last.
struct EvenKeys {
  int begin, end;
};
WEFT_INLINE i64 value_of(const BoundTerm& term, int pos, int kv_len) {
  return static_cast<i64>(term.constant) + (term.q_pos ? pos : 0) + (term.kv_len ? kv_len : 0);
}
WEFT_INLINE EvenKeys keys_of(const PlanHeader& plan, int qo_len, int kv_len) {
  if (plan.num_intervals == 0) return {0, kv_len};
  EvenKeys keys = {0, 0};
  WEFT_NO_UNROLL
  for (int i = 0; i < plan.num_intervals; ++i) {
    const ResolvedInterval& interval = plan.intervals[i];
    i64 begin = 0, end = kv_len;
    WEFT_NO_UNROLL
    for (int k = 0; k < interval.num_lower; ++k) {
      const i64 bound = value_of(interval.lower[k], kv_len - qo_len, kv_len);
      begin = bound > begin ? bound : begin;
    }
    WEFT_NO_UNROLL
    for (int k = 0; k < interval.num_upper; ++k) {
      const i64 bound = value_of(interval.upper[k], kv_len - 1, kv_len);
      end = bound < end ? bound : end;
    }
    if (begin >= end) continue;
    const bool first = keys.begin == keys.end;
    keys.begin = first || begin < keys.begin ? static_cast<int>(begin) : keys.begin;
    keys.end = first || end > keys.end ? static_cast<int>(end) : keys.end;
  }
  return keys;
}

class PlanEven {
 public:
  struct Shared {
    PlanHeader header;
    long long before[kMostEvenRequests + 1];  // cost of one unit of each request before
    int pages_before[kMostEvenRequests + 1];
    EvenBorder borders[kMostEvenWorkers + 1];
    // Up to and with the border of a worker: units cut there, cuts; and workers before it that have an item.
    int cut_units[kMostEvenWorkers + 1], cuts[kMostEvenWorkers + 1], busy[kMostEvenWorkers + 1];
    long long sums[kEvenThreads];
  };
  static constexpr int kSharedBytes = sizeof(Shared);

  WEFT_INLINE explicit PlanEven(const EvenArgs& args)
      : args_(args),
        batch_(args.batch),
        plan_(args.header),
        requests_(plan_.num_requests),
        workers_(plan_.num_workers),
        units_(requests_ * plan_.num_kv_heads),
        line_{shared().before, requests_, plan_.num_kv_heads, workers_, args.batch.granule, args.batch.overhead} {}

  WEFT_INLINE void run() {
    lay_line();
    place_sections();
    write_workers();
    for (int i = index(); i < num_items(); i += stride()) write_item(i);
    for (int u = index(); u < units_; u += stride()) write_unit(u);
    for (int r = index(); r < requests_; r += stride()) write_request(r);
    for (int r = ptx::cta_index(); r < requests_; r += ptx::num_ctas()) write_page_ids(r);
    if (ptx::cta_index() == 0) write_header();
  }

 private:
  WEFT_INLINE static Shared& shared() { return *reinterpret_cast<Shared*>(ptx::shared_memory()); }
  WEFT_INLINE static int index() { return ptx::cta_index() * kEvenThreads + ptx::thread_index(); }
  WEFT_INLINE static int stride() { return ptx::num_ctas() * kEvenThreads; }
  template <class T>
  WEFT_INLINE T* to(const Section& s) const {
    return section<T>(args_.workspace, s);
  }
  WEFT_INLINE const PlanHeader& placed() const { return shared().header; }
  WEFT_INLINE int num_cuts() const { return shared().cuts[workers_]; }
  WEFT_INLINE int num_cut_units() const { return shared().cut_units[workers_]; }
  WEFT_INLINE int num_items() const { return units_ + num_cuts(); }
  WEFT_INLINE int items_before(int worker) const { return shared().borders[worker].unit + shared().cuts[worker]; }
  WEFT_INLINE int num_pages(int kv_len) const { return (kv_len + plan_.page_size - 1) / plan_.page_size; }

  WEFT_INLINE int length_of(int request) const {
    const int given = batch_.kv_len[request];
    const i64 room = static_cast<i64>(batch_.pages_of_request) * plan_.page_size;
    const int most = room < batch_.max_kv_len ? static_cast<int>(room) : batch_.max_kv_len;
    if (given < 0 || given > most) ptx::atomic_or(args_.flag, 1);
    return given < 0 ? 0 : given > most ? most : given;
  }

  // x[i] becomes the sum of x[0] to x[i].
  template <class T>
  WEFT_INLINE static void sum_up(T* x, int n) {
    long long* const sums = shared().sums;
    const int each = (n + kEvenThreads - 1) / kEvenThreads, thread = ptx::thread_index();
    const int begin = thread * each < n ? thread * each : n, end = begin + each < n ? begin + each : n;
    long long sum = 0;
    for (int i = begin; i < end; ++i) sum += x[i];
    sums[thread] = sum;
    ptx::cta_sync();
    WEFT_NO_UNROLL
    for (int d = 1; d < kEvenThreads; d *= 2) {
      const long long more = thread >= d ? sums[thread - d] : 0;
      ptx::cta_sync();
      sums[thread] += more;
      ptx::cta_sync();
    }
    sum = thread > 0 ? sums[thread - 1] : 0;
    for (int i = begin; i < end; ++i) x[i] = static_cast<T>(sum += x[i]);
    ptx::cta_sync();
  }

  WEFT_INLINE void lay_line() {
    Shared& s = shared();
    for (int r = ptx::thread_index(); r <= requests_; r += kEvenThreads) {
      const int kv_len = r > 0 ? length_of(r - 1) : 0;
      const EvenKeys keys = keys_of(plan_, batch_.qo_len, kv_len);
      s.before[r] = r > 0 ? batch_.overhead + even_granules(keys.begin, keys.end, batch_.granule) : 0;
      s.pages_before[r] = num_pages(kv_len);
    }
    ptx::cta_sync();
    sum_up(s.before, requests_ + 1);
    sum_up(s.pages_before, requests_ + 1);
    for (int w = ptx::thread_index(); w <= workers_; w += kEvenThreads) s.borders[w] = even_border(line_, w);
    ptx::cta_sync();
    for (int w = ptx::thread_index(); w <= workers_; w += kEvenThreads) {
      const EvenBorder at = s.borders[w], last = w > 0 ? s.borders[w - 1] : EvenBorder{0, 0};
      s.cuts[w] = at.granules > 0 && !(at == last);
      s.cut_units[w] = at.granules > 0 && !(at.unit == last.unit && last.granules > 0);
      s.busy[w] = w > 0 && !(at == last);
    }
    ptx::cta_sync();
    sum_up(s.cuts, workers_ + 1);
    sum_up(s.cut_units, workers_ + 1);
    sum_up(s.busy, workers_ + 1);
  }

  // As plan/bounds.cpp does.
  WEFT_INLINE void place_sections() const {
    Shared& s = shared();
    const auto* const from = reinterpret_cast<const u32*>(&plan_);
    auto* const copy = reinterpret_cast<u32*>(&s.header);
    for (int i = ptx::thread_index(); i < static_cast<int>(sizeof(PlanHeader) / 4); i += kEvenThreads)
      copy[i] = from[i];
    ptx::cta_sync();
    if (ptx::thread_index() == 0) {
      PlanHeader& h = s.header;
      i64 offset = kRecordsOffset;
      const auto place = [&](Section& section, i64 count, int bytes) {
        section = {offset, count};
        offset = (offset + count * bytes + 63) / 64 * 64;
      };
      const int partials = num_cuts() + num_cut_units();
      place(h.records, workers_ + num_items() - s.busy[workers_], sizeof(ItemRecord));
      place(h.worker_indptr, workers_ + 1, sizeof(int));
      place(h.items, num_items(), sizeof(WorkItem));
      place(h.units, units_, sizeof(Unit));
      place(h.rows, static_cast<i64>(requests_) * batch_.qo_len, sizeof(PlanRow));
      place(h.page_lists, requests_, sizeof(PageList));
      place(h.partials, partials, sizeof(Partial));
      place(h.merge_groups, num_cut_units(), sizeof(MergeGroup));
      place(h.merge_sources, partials, sizeof(MergeSource));
      place(h.qo_len, requests_, sizeof(int));
      place(h.kv_len, requests_, sizeof(int));
      place(h.kv_positions, 0, sizeof(int));
      place(h.bits_index, 0, sizeof(int));
      place(h.bits, 0, 1);
      place(h.counters, num_cut_units(), sizeof(int));
      place(h.page_indices, s.pages_before[requests_], sizeof(int));
      h.partial_data.count = partials * floats();
    }
    ptx::cta_sync();
  }
  WEFT_INLINE i64 floats() const {
    return partial_floats(static_cast<i64>(batch_.qo_len) * (plan_.num_qo_heads / plan_.num_kv_heads),
                          plan_.head_dim_vo);
  }

  // The first border behind which a unit's granules were given away, or behind the unit.
  WEFT_INLINE int first_cut(int unit) const {
    int low = 0, high = workers_;
    while (low < high) {
      const int middle = (low + high) / 2;
      const EvenBorder& at = shared().borders[middle];
      if (at.unit > unit || (at.unit == unit && at.granules > 0))
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
  struct Cuts {
    int count;
    int first_partial, group;  // where there are some
    int before;                // of units before
  };
  WEFT_INLINE Cuts cuts_of(int unit) const {
    const int first = first_cut(unit), behind = first_cut(unit + 1);
    // The borders between may be of the next unit's beginning: those cut nothing.
    const int before = first > 0 ? shared().cuts[first - 1] : 0, group = first > 0 ? shared().cut_units[first - 1] : 0;
    const int count = (behind > 0 ? shared().cuts[behind - 1] : 0) - before;
    return {count, before + group, group, before};
  }

  WEFT_INLINE ItemRecord record_of(int unit, const WorkItem& item, const Cuts& cuts, int chunk, int next) const {
    const int request = unit / plan_.num_kv_heads, head = unit % plan_.num_kv_heads, kv_len = length_of(request);
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
    record.first = shared().pages_before[request];
    record.partial = cut ? item.partial * floats() : -1;
    record.chunk = chunk;
    record.num_chunks = cuts.count + 1;
    record.merge_begin = cut ? cuts.group : 0;
    record.merge_rows = record.merge_heads = cut;
    record.num_page_ids = num_pages(kv_len);
    return record;
  }

  WEFT_INLINE void write_item(int i) const {
    const Shared& s = shared();
    int worker = 0, high = workers_ - 1;  // the one whose items hold i
    while (worker < high) {
      const int middle = (worker + high + 1) / 2;
      if (items_before(middle) <= i)
        worker = middle;
      else
        high = middle - 1;
    }
    const EvenBorder from = s.borders[worker], until = s.borders[worker + 1];
    const int own = i - items_before(worker), unit = from.unit + own;
    const int given = own == 0 ? from.granules : 0;  // of the unit, to workers before
    const int kv_len = length_of(unit / plan_.num_kv_heads);
    const EvenKeys keys = keys_of(plan_, batch_.qo_len, kv_len);
    const Cuts cuts = cuts_of(unit);
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
      to<Partial>(placed().partials)[item.partial] = {item.partial * floats(), unit, 0};
      to<MergeSource>(placed().merge_sources)[item.partial] = {item.partial, 0};
    }
    // Its record: the worker's own, or one of those that are no worker's first.
    const int rest = workers_ + items_before(worker) - s.busy[worker];
    const int next = i + 1 < items_before(worker + 1) ? rest + own : -1;
    to<ItemRecord>(placed().records)[own == 0 ? worker : rest + own - 1] = record_of(unit, item, cuts, chunk, next);
  }

  WEFT_INLINE void write_workers() const {
    for (int w = index(); w <= workers_; w += stride()) {
      to<int>(placed().worker_indptr)[w] = items_before(w);
      if (w == workers_ || items_before(w) < items_before(w + 1)) continue;
      ItemRecord none = {};
      none.next = -1;
      to<ItemRecord>(placed().records)[w] = none;
    }
  }

  WEFT_INLINE void write_unit(int u) const {
    const int request = u / plan_.num_kv_heads, head = u % plan_.num_kv_heads;
    const int row = request * batch_.qo_len;
    const Cuts cuts = cuts_of(u);
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
    const int kv_len = length_of(r), row = r * batch_.qo_len;
    for (int i = 0; i < batch_.qo_len; ++i)
      to<PlanRow>(placed().rows)[row + i] = {row + i, r, i, kv_len - batch_.qo_len + i};
    to<PageList>(placed().page_lists)[r] = {shared().pages_before[r], 0, -1, r, 0, row, row + batch_.qo_len, 0,
                                            plan_.num_kv_heads};
    to<int>(placed().qo_len)[r] = batch_.qo_len;
    to<int>(placed().kv_len)[r] = kv_len;
  }

  WEFT_INLINE void write_page_ids(int r) const {
    const int first = shared().pages_before[r], n = shared().pages_before[r + 1] - first;
    const int most = static_cast<int>(plan_.num_pool_pages) - 1;
    for (int i = ptx::thread_index(); i < n; i += kEvenThreads) {
      const int given = batch_.page_table[r * batch_.page_table_stride + i];
      if (given < 0 || given > most) ptx::atomic_or(args_.flag, 1);
      to<int>(placed().page_indices)[first + i] = given < 0 ? 0 : given > most ? most : given;
    }
  }

  // And the gaps between sections, which are zero.
  WEFT_INLINE void write_header() const {
    const auto* const from = reinterpret_cast<const u32*>(&placed());
    auto* const header = reinterpret_cast<u32*>(args_.workspace);
    const int words = sizeof(PlanHeader) / 4;
    for (int i = ptx::thread_index(); i < words; i += kEvenThreads) header[i] = from[i];
    const PlanHeader& h = placed();
    const auto zero_up = [&](i64 end) {
      for (i64 i = end + ptx::thread_index() * 4; i < (end + 63) / 64 * 64; i += kEvenThreads * 4)
        *reinterpret_cast<u32*>(args_.workspace + i) = 0;
    };
    const auto behind = [](const Section& s, i64 bytes) { return s.offset + s.count * bytes; };
    zero_up(sizeof(PlanHeader));
    zero_up(behind(h.records, sizeof(ItemRecord)));
    zero_up(behind(h.worker_indptr, sizeof(int)));
    zero_up(behind(h.items, sizeof(WorkItem)));
    zero_up(behind(h.units, sizeof(Unit)));
    zero_up(behind(h.rows, sizeof(PlanRow)));
    zero_up(behind(h.page_lists, sizeof(PageList)));
    zero_up(behind(h.partials, sizeof(Partial)));
    zero_up(behind(h.merge_groups, sizeof(MergeGroup)));
    zero_up(behind(h.merge_sources, sizeof(MergeSource)));
    zero_up(behind(h.qo_len, sizeof(int)));
    zero_up(behind(h.kv_len, sizeof(int)));
    zero_up(behind(h.counters, sizeof(int)));
  }

  const EvenArgs& args_;
  const EvenBatch& batch_;
  const PlanHeader& plan_;
  const int requests_, workers_, units_;
  const EvenLine line_;
};

}  // namespace weft::attention::cuda
