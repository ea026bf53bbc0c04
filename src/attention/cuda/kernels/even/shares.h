// Where the workers' shares of an even plan begin, and which units they cut (attention/even.h). Every CTA lays the whole line in
// its shared memory, where it costs as little as asking another one.
#pragma once

#include "attention/cuda/kernels/even_args.h"
#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::attention::cuda::even {

// Keys that some row of a request sees, from the first to the last.
struct Keys {
  int begin, end;
};
WEFT_INLINE i64 value_of(const BoundTerm& term, int pos, int kv_len) {
  return static_cast<i64>(term.constant) + (term.q_pos ? pos : 0) + (term.kv_len ? kv_len : 0);
}
WEFT_INLINE Keys keys_of(const PlanHeader& plan, int qo_len, int kv_len) {
  if (plan.num_intervals == 0) return {0, kv_len};
  Keys keys = {0, 0};
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

// Of the CTA.
struct Shared {
  PlanHeader header;                        // of the plan that is made (sections.h)
  long long before[kMostEvenRequests + 1];  // cost of one unit of each request before
  int pages_before[kMostEvenRequests + 1];
  EvenBorder borders[kMostEvenWorkers + 1];
  // Up to and with the border of a worker: units cut there, cuts; and workers before it that have an item.
  int cut_units[kMostEvenWorkers + 1], cuts[kMostEvenWorkers + 1], busy[kMostEvenWorkers + 1];
  long long sums[kEvenThreads];
};
WEFT_INLINE Shared& shared() { return *reinterpret_cast<Shared*>(ptx::shared_memory()); }

// x[i] becomes the sum of x[0] to x[i].
template <class T>
WEFT_INLINE void sum_up(T* x, int n) {
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

class Shares {
 public:
  WEFT_INLINE explicit Shares(const EvenArgs& args)
      : args_(args),
        batch_(args.batch),
        plan_(args.header),
        requests_(plan_.num_requests),
        workers_(plan_.num_workers),
        units_(requests_ * plan_.num_kv_heads) {}

  // To shared memory.
  WEFT_INLINE void lay() const {
    Shared& s = shared();
    for (int r = ptx::thread_index(); r <= requests_; r += kEvenThreads) {
      const int kv_len = r > 0 ? length_of(r - 1) : 0;
      const Keys keys = keys_of(plan_, batch_.qo_len, kv_len);
      s.before[r] = r > 0 ? batch_.overhead + even_granules(keys.begin, keys.end, batch_.granule) : 0;
      s.pages_before[r] = num_pages(kv_len);
    }
    ptx::cta_sync();
    sum_up(s.before, requests_ + 1);
    sum_up(s.pages_before, requests_ + 1);
    const EvenLine line = {s.before, requests_, plan_.num_kv_heads, workers_, batch_.granule, batch_.overhead};
    for (int w = ptx::thread_index(); w <= workers_; w += kEvenThreads) s.borders[w] = even_border(line, w);
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

  // Of a unit.
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

 private:
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

  const EvenArgs& args_;
  const EvenBatch& batch_;
  const PlanHeader& plan_;
  const int requests_, workers_, units_;
};

}  // namespace weft::attention::cuda::even
