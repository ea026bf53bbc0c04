// The warpgroup that loads: it finds the rows of one item after another, and brings their queries, keys and values
// ahead of the warpgroups that multiply them, over all items of the CTA.
//
// Values of a tile that some rows do not see whole are looked at before they are multiplied: a probability of 0 times
// NaN is NaN. Those that no row sees become zeros, as do those that are not finite, which are added in the end to the
// rows that see them.
#pragma once

#include "attention/cuda/kernels/plan_copy.h"
#include "attention/cuda/kernels/producer/loaders.h"
#include "attention/cuda/kernels/vectors.h"
#include "tile/cuda/ptx/dependent_launch.h"

namespace weft::attention::cuda::producer {

#if WEFT_SM >= 90
// Bits of the exponents of two elements.
template <class T>
inline constexpr u32 kExponents = 0x7f807f80u;
template <>
inline constexpr u32 kExponents<fp16> = 0x7c007c00u;

// The elements of a word that are NaN or infinite become 0; whether there were some.
template <class T>
WEFT_INLINE bool drop_non_finite(u32& word) {
  constexpr u32 kLowest = kExponents<T> & ~(kExponents<T> << 1);
  const u32 full = ((word & kExponents<T>)+kLowest) & 0x80008000u;  // an exponent carries where it is all ones
  if (full == 0) return false;
  word &= ~(full | (full - (full >> 15)));
  return true;
}

template <class Shape, class Loader>
class Load {
  using S = typename Shape::S;
  using F = typename Shape::F;
  using P = typename F::P;
  using T = typename Shape::T;
  using Job = typename Shape::Job;
  static constexpr int kThreads = Shape::kLoaders, kStages = Shape::kStages;

 public:
  WEFT_INLINE Load(const Call& call, const P& p, const Loader& loader)
      : call_(call), p_(p), loader_(loader), thread_(ptx::thread_index() - S::kThreads) {}

  WEFT_INLINE void run() {
    ItemRecord(&items)[2] = Shape::shared().scratch.items;
    int at = 0;
    for (int worker = ptx::cta_index(); worker < header().num_workers; worker += ptx::num_ctas()) {
      if (worker != ptx::cta_index()) {
        fetch_record(worker, items[at]);
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
        sync();
      }
      for (bool more = true; more; at ^= 1) {
        const ItemRecord& item = items[at];
        more = item.next >= 0;
        if (more) fetch_record(item.next, items[at ^ 1]);  // it lands with the first keys
        const int num_rows = item.num_rows * call_.group_size;
        if (num_rows == 0) land_record();
        WEFT_NO_UNROLL
        for (int kv_head = item.kv_head_begin; num_rows > 0 && kv_head < item.kv_head_end; ++kv_head) WEFT_NO_UNROLL
        for (int first = 0; first < num_rows; first += Shape::kRows)
          load(item, kv_head, first, num_rows - first < Shape::kRows ? num_rows - first : Shape::kRows,
               kv_head + 1 == item.kv_head_end && first + Shape::kRows >= num_rows);
        sync();  // the record is there
      }
    }
    tell_values<0>();
    jobs_.wait_for_room();
    if (thread_ != 0) return;
    Shape::shared().jobs[jobs_.stage()].n = 0;
    ptx::mbarrier_arrive(&Shape::shared().of_jobs.full[jobs_.stage()]);
  }

 private:
  WEFT_INLINE static void sync() { ptx::named_sync(Shape::kLoadersBarrier, kThreads); }

  WEFT_INLINE void fetch_record(int index, ItemRecord& to) const {
    copy_record(call_.plan, index, to, thread_, kThreads);
  }
  // Where no keys come.
  WEFT_INLINE void land_record() {
    tell_values<0>();
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
  }

  WEFT_INLINE void load(const ItemRecord& item, int kv_head, int first, int n, bool ends_item) {
    jobs_.wait_for_room();
    Job& job = Shape::shared().jobs[jobs_.stage()];
    job_ = jobs_.stage();
    find(item, kv_head, first, n, ends_item, job);
    jobs_.advance();
    if (is_first_) ptx::wait_for_previous_kernel();  // which makes queries, keys and values, and no plan
    is_first_ = false;
    const int num_tiles = job.walk.num_tiles;
    if (num_tiles == 0) {
      land_record();
      queries_.wait_for_room();  // outputs leave by way of their stage
      queries_.filled();
      queries_.advance();
      return;
    }
    const Rows<Shape> rows(call_, p_, job);
    loader_.begin(rows, thread_);
    WEFT_NO_UNROLL
    for (int tile = 0; tile < num_tiles; ++tile) {
      loader_.fetch_keys(rows, tile, keys_, thread_);
      keys_.advance();
      ptx::cp_async_commit();
      tell_values<1>();
      if (tile == 0) fetch_queries(job);
      const bool looks = is_seen_in_part(job, tile);
      loader_.fetch_values(rows, tile, values_, looks, thread_);
      values_.advance();
      ptx::cp_async_commit();
      told_job_ = job_, told_tile_ = tile, told_looks_ = looks;
      if (tile == 0) tell_queries();
      tell_keys();
    }
  }

  // All that the job says.
  WEFT_INLINE void find(const ItemRecord& item, int kv_head, int first, int n, bool ends_item, Job& job) {
    constexpr int kWords = sizeof(ItemRecord) / 16;
    if (thread_ < kWords)
      reinterpret_cast<Bytes16*>(&job.item)[thread_] = reinterpret_cast<const Bytes16*>(&item)[thread_];
    if (thread_ == 0) {
      job.kv_head = kv_head, job.first = first, job.n = n;
      job.ends_item = ends_item;
      job.not_finite = 0;
      job.tokens = Tokens<S>(call_, item);
    }
    // Rows behind the last one are that one again, so that functors see what exists.
    WEFT_NO_UNROLL
    for (int r = thread_; r < Shape::kRows; r += kThreads)
      job.rows[r] = fused_row(call_, item, kv_head, first + (r < n ? r : n - 1));
    sync();
    // Of an item that begins where its rows see their first key tiles begin a little earlier.
    if (thread_ < 32)
      mma::find_seen_tiles<Shape::kKeys>(Rows<Shape>(call_, p_, job), job.rows,
                                         item.kv_begin / kProducerGranule * kProducerGranule, end_of(call_, item),
                                         job.visible, job.walk);
    sync();
    if (thread_ == 0) ptx::mbarrier_arrive(&Shape::shared().of_jobs.full[jobs_.stage()]);
  }

  WEFT_INLINE void fetch_queries(const Job& job) {
    queries_.wait_for_room();
    WEFT_NO_UNROLL
    for (int group = 0; group < Shape::kGroups; ++group) {
      using Copy = mma::RowCopy<kThreads, Shape::kPadQk, typename Shape::Queries>;
      const auto queries = Shape::queries(queries_.stage(), group);
      const Copy copy(queries, thread_);
      WEFT_NO_UNROLL
      for (int i = 0; i < Copy::template kCopies<64>; ++i)
        if (copy.template has<64>(i))
          copy.template copy<2 * Shape::kDimQk>(queries, i, query_of(call_, job.rows[64 * group + copy.row(i)]));
    }
    ptx::cp_async_commit();
  }

  // What was fetched is there, and those who multiply are told: of queries and keys when values are on their way, of
  // values when the next keys are.
  WEFT_INLINE void tell_queries() {
    ptx::cp_async_wait<1>();
    queries_.filled();
    queries_.advance();
  }
  WEFT_INLINE void tell_keys() {
    if constexpr (!Shape::kGathers) return;
    ptx::cp_async_wait<1>();
    keys_there_.filled();
    keys_there_.advance();
  }
  template <int pending>
  WEFT_INLINE void tell_values() {
    if (told_tile_ < 0) return;
    auto& s = Shape::shared();
    const auto values = Shape::values_of(values_there_.stage());
    if constexpr (Shape::kGathers) {
      ptx::cp_async_wait<pending>();
      if (told_looks_) look(s.jobs[told_job_], told_tile_, values);
      values_there_.filled();
    } else if (told_looks_) {
      ptx::mbarrier_wait(&s.landed, landed_parity_);
      landed_parity_ ^= 1;
      look(s.jobs[told_job_], told_tile_, values);
      ptx::fence_async_shared();
      sync();
      if (thread_ == 0) ptx::mbarrier_arrive(&s.of_values.full[values_there_.stage()]);
    }
    values_there_.advance();
    told_tile_ = -1;
  }

  WEFT_INLINE static bool is_seen_in_part(const Job& job, int tile) {
    const int at = job.walk.at(tile), begin = job.item.first_pos + at;
    return job.walk.end - at < Shape::kKeys || !job.visible.is_seen_by_all(begin, begin + Shape::kKeys);
  }
  // At what this thread copied where it gathers.
  WEFT_INLINE void look(Job& job, int tile, const typename Shape::Values& values) const {
    using Copy = mma::RowCopy<kThreads, Shape::kPadVo, typename Shape::Values>;
    const Copy own(values, thread_);
    const int at = job.walk.at(tile);
    bool found = false;
    WEFT_NO_UNROLL
    for (int i = 0; i < Copy::template kCopies<Shape::kKeys>; ++i) {
      if (!own.template has<Shape::kKeys>(i)) continue;
      const int t = at + own.row(i), pos = job.item.first_pos + t;
      const bool is_seen = t < job.walk.end && job.visible.touches(pos, pos + 1);
      auto& chunk = *reinterpret_cast<Bytes16*>(values.chunk(own.row(i), own.chunk));
      if (!is_seen) {
        chunk = {};
        continue;
      }
      Bytes16 kept = chunk;
      bool drops = false;
      WEFT_UNROLL
      for (u32& word : kept.word) drops |= drop_non_finite<T>(word);
      if (drops) chunk = kept;
      found |= drops;
    }
    if (found) ptx::store_relaxed_shared(&job.not_finite, 1);
  }

  const Call& call_;
  const P& p_;
  const Loader loader_;
  const int thread_;
  tile::StageWalk<Shape::kJobs> jobs_{Shape::shared().of_jobs};
  tile::StageWalk<Shape::kQueryStages> queries_{Shape::shared().of_queries};
  tile::StageWalk<kStages> keys_{Shape::shared().of_keys}, keys_there_ = keys_;
  tile::StageWalk<kStages> values_{Shape::shared().of_values}, values_there_ = values_;
  int job_ = 0;
  // Values that nobody was told of yet.
  int told_job_ = 0, told_tile_ = -1;
  bool told_looks_ = false;
  u32 landed_parity_ = 0;
  bool is_first_ = true;
};
#endif

}  // namespace weft::attention::cuda::producer
