// Where the workers' shares of an even plan begin, and which units they cut (attention/even.h). Every CTA lays the
// whole line in its shared memory, where it costs as little as asking another one.
#pragma once

#include "attention/cuda/kernels/even_args.h"
#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/shuffle.h"
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
  long long sums[3][kEvenThreads / 32];  // of the warps' parts of three arrays
  int lengths[kMostEvenRequests];
};
WEFT_INLINE Shared& shared() { return *reinterpret_cast<Shared*>(ptx::shared_memory()); }

// A thread runs through this code once, and waits for it to be fetched: it is kept short, and loops are not unrolled.

WEFT_INLINE int shuffle(int x, int from) { return static_cast<int>(ptx::shuffle(static_cast<u32>(x), from)); }
WEFT_INLINE long long shuffle(long long x, int from) {
  const u64 bits = static_cast<u64>(x);
  const u64 low = ptx::shuffle(static_cast<u32>(bits), from), high = ptx::shuffle(static_cast<u32>(bits >> 32), from);
  return static_cast<long long>(high << 32 | low);
}
// Of this lane and those before.
template <class T>
WEFT_INLINE T sum_of_lanes(T x) {
  WEFT_NO_UNROLL
  for (int d = 1; d < 32; d *= 2) {
    const T more = shuffle(x, (ptx::lane() - d) & 31);
    x += ptx::lane() >= d ? more : 0;
  }
  return x;
}

// What a thread has of an array of n.
struct Part {
  int begin, end;
};
WEFT_INLINE Part part_of(int n) {
  const int each = (n + kEvenThreads - 1) / kEvenThreads, begin = ptx::thread_index() * each;
  return {begin < n ? begin : n, begin + each < n ? begin + each : n};
}
// The sum of the thread's part, behind those of the warp's threads before it; the warp's is left in shared memory.
template <class T>
WEFT_INLINE T add_up(const T* x, const Part& part, int array) {
  T sum = 0;
  WEFT_NO_UNROLL
  for (int i = part.begin; i < part.end; ++i) sum += x[i];
  const T of_lanes = sum_of_lanes(sum);
  if (ptx::lane() == 31) shared().sums[array][ptx::warp()] = of_lanes;
  return of_lanes - sum;
}
// x[i] becomes the sum of x[0] to x[i], once the CTA has met behind add_up.
template <class T>
WEFT_INLINE void write_sums(T* x, const Part& part, int array, T before) {
  const T of_warps = sum_of_lanes(static_cast<T>(ptx::lane() < ptx::warp() ? shared().sums[array][ptx::lane()] : 0));
  before += shuffle(of_warps, 31);
  WEFT_NO_UNROLL
  for (int i = part.begin; i < part.end; ++i) x[i] = before += x[i];
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
    WEFT_NO_UNROLL
    for (int r = ptx::thread_index(); r <= requests_; r += kEvenThreads) {
      const int kv_len = r > 0 ? given_length(r - 1) : 0;
      const Keys keys = keys_of(plan_, batch_.qo_len, kv_len);
      s.before[r] = r > 0 ? batch_.overhead + even_granules(keys.begin, keys.end, batch_.granule) : 0;
      s.pages_before[r] = num_pages(kv_len);
      if (r > 0) s.lengths[r - 1] = kv_len;
    }
    ptx::cta_sync();
    const Part requests = part_of(requests_ + 1), workers = part_of(workers_ + 1);
    const i64 before = add_up(s.before, requests, 0);
    const int pages_before = add_up(s.pages_before, requests, 1);
    ptx::cta_sync();
    write_sums(s.before, requests, 0, before);
    write_sums(s.pages_before, requests, 1, pages_before);
    ptx::cta_sync();
    const EvenLine line = {s.before, requests_, plan_.num_kv_heads, workers_, batch_.granule, batch_.overhead};
    WEFT_NO_UNROLL
    for (int w = ptx::thread_index(); w <= workers_; w += kEvenThreads) s.borders[w] = even_border(line, w);
    ptx::cta_sync();
    WEFT_NO_UNROLL
    for (int w = ptx::thread_index(); w <= workers_; w += kEvenThreads) {
      const EvenBorder at = s.borders[w], last = w > 0 ? s.borders[w - 1] : EvenBorder{0, 0};
      s.cuts[w] = at.granules > 0 && !(at == last);
      s.cut_units[w] = at.granules > 0 && !(at.unit == last.unit && last.granules > 0);
      s.busy[w] = w > 0 && !(at == last);
    }
    ptx::cta_sync();
    const int cuts = add_up(s.cuts, workers, 0), cut_units = add_up(s.cut_units, workers, 1),
              busy = add_up(s.busy, workers, 2);
    ptx::cta_sync();
    write_sums(s.cuts, workers, 0, cuts);
    write_sums(s.cut_units, workers, 1, cut_units);
    write_sums(s.busy, workers, 2, busy);
    ptx::cta_sync();
  }

  WEFT_INLINE int num_cuts() const { return shared().cuts[workers_]; }
  WEFT_INLINE int num_cut_units() const { return shared().cut_units[workers_]; }
  WEFT_INLINE int num_items() const { return units_ + num_cuts(); }
  WEFT_INLINE int items_before(int worker) const { return shared().borders[worker].unit + shared().cuts[worker]; }
  WEFT_INLINE int num_pages(int kv_len) const { return (kv_len + plan_.page_size - 1) / plan_.page_size; }

  WEFT_INLINE int length_of(int request) const { return shared().lengths[request]; }

  // Of a unit.
  struct Cuts {
    int count;
    int first_partial, group;  // where there are some
    int before;                // of units before
  };
  // `worker` has some of its granules, or its beginning; others before it had some where `given`, others behind it have
  // some where `goes_on`.
  WEFT_INLINE Cuts cuts_of(int unit, int worker, bool given, bool goes_on) const {
    const Shared& s = shared();
    const int first = given ? first_cut(unit, 0, worker) - 1 : worker;
    // The borders between may be of the next unit's beginning: those cut nothing.
    const int last = goes_on ? first_cut(unit + 1, worker + 1, workers_) - 1 : worker;
    const int before = first >= 0 ? s.cuts[first] : 0, group = first >= 0 ? s.cut_units[first] : 0;
    return {s.cuts[last] - before, before + group, group, before};
  }

 private:
  // Clamped.
  WEFT_INLINE int given_length(int request) const {
    const int given = batch_.kv_len[request];
    const i64 room = static_cast<i64>(batch_.pages_of_request) * plan_.page_size;
    const int most = room < batch_.max_kv_len ? static_cast<int>(room) : batch_.max_kv_len;
    if (given < 0 || given > most) ptx::atomic_or(args_.flag, 1);
    return given < 0 ? 0 : given > most ? most : given;
  }

  // The first border of [low, high] behind which a unit's granules were given away, or behind the unit; `high` where
  // none is.
  WEFT_INLINE int first_cut(int unit, int low, int high) const {
    WEFT_NO_UNROLL
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
