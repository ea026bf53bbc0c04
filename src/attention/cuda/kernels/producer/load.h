// The warpgroup that loads: it finds the rows of one item after another, and brings their queries, keys and values
// ahead of the warpgroups that multiply them, over all items of the CTA.
//
// Values of a tile that some rows do not see whole are looked at before they are multiplied: a probability of 0 times
// NaN is NaN. Where some are not finite, those become zeros, and are added in the end to the rows that see them, as do
// all that no row sees.
#pragma once

#include "attention/cuda/kernels/mma/non_finite.h"
#include "attention/cuda/kernels/plan_copy.h"
#include "attention/cuda/kernels/producer/loaders.h"
#include "attention/cuda/kernels/producer/transforms.h"
#include "attention/cuda/kernels/vectors.h"
#include "tile/cuda/ptx/dependent_launch.h"

namespace weft::attention::cuda::producer {

#if WEFT_SM >= 90
// Bits of the exponents of two elements.
template <class T>
inline constexpr u32 kExponents = 0x7f807f80u;
template <>
inline constexpr u32 kExponents<fp16> = 0x7c007c00u;

// The highest bit of each element of a word that is NaN or infinite.
template <class T>
WEFT_INLINE u32 carry_of_non_finite(u32 word) {
  constexpr u32 kLowest = kExponents<T> & ~(kExponents<T> << 1);
  return ((word & kExponents<T>)+kLowest) & 0x80008000u;  // an exponent carries where it is all ones
}
// Such elements become 0; whether there were some.
template <class T>
WEFT_INLINE bool drop_non_finite(u32& word) {
  const u32 full = carry_of_non_finite<T>(word);
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
  using HeadScales = mma::HeadScales<Shape>;
  static constexpr int kThreads = Shape::kLoaders, kStages = Shape::kStages;

 public:
  WEFT_INLINE Load(const Call& call, const P& p, const Loader& loader)
      : call_(call), p_(p), loader_(loader), thread_(ptx::thread_index() - S::kThreads) {}

  // A job is found while the keys of the one before it are multiplied.
  WEFT_INLINE void run() {
    if constexpr (S::kBlockSparse)
      if (call_.lists_are_new) ptx::wait_for_previous_kernel();  // items are as the host made them
    bool more = find_first();
    if (more) ptx::wait_for_previous_kernel();  // which makes queries, keys and values, and no plan
    while (more) more = load(found_);
    settle();
    jobs_.wait_for_room();
    if (thread_ != 0) return;
    Shape::shared().jobs[jobs_.stage()].n = 0;
    ptx::mbarrier_arrive(&Shape::shared().of_jobs.full[jobs_.stage()]);
  }

 private:
  // What the copies issued last bring; the warpgroups that multiply are not told of it yet.
  enum class Copied { nothing, queries, keys, values };

  WEFT_INLINE static void sync() { ptx::named_sync(Shape::kLoadersBarrier, kThreads); }

  WEFT_INLINE void fetch_record(int index, ItemRecord& to) const {
    copy_record(call_.plan, index, to, thread_, kThreads);
    ptx::cp_async_commit();
  }

  // The job that follows, where there is one: rows of a KV head of the item, or of another item. The first item's
  // record is there, and that of the next one is on its way while an item has jobs.
  WEFT_INLINE bool find_first() {
    worker_ = ptx::cta_index();
    if (worker_ >= header().num_workers) return false;
    begin_item();
    return find_next();
  }
  WEFT_INLINE bool find_next() {
    ItemRecord(&items)[2] = Shape::shared().scratch.items;
    WEFT_NO_UNROLL
    while (kv_head_ >= items[at_].kv_head_end || items[at_].num_rows == 0) {
      if (items[at_].next < 0) {
        worker_ += ptx::num_ctas();
        if (worker_ >= header().num_workers) return false;
        fetch_record(worker_, items[at_ ^ 1]);
      }
      at_ ^= 1;
      settle();
      sync();
      begin_item();
    }
    const ItemRecord& item = items[at_];
    const int num_rows = item.num_rows * call_.group_size, first = first_;
    const int n = num_rows - first < Shape::kRows ? num_rows - first : Shape::kRows, kv_head = kv_head_;
    first_ += Shape::kRows;
    if (first_ >= num_rows) first_ = 0, ++kv_head_;
    jobs_.wait_for_room();
    found_ = jobs_.stage();
    find(item, kv_head, first, n, kv_head_ >= item.kv_head_end, Shape::shared().jobs[found_]);
    jobs_.advance();
    ptx::cp_async_wait<0>();  // the next item's record has landed by now: waits for later copies do not count it
    return true;
  }
  WEFT_INLINE void begin_item() {
    ItemRecord(&items)[2] = Shape::shared().scratch.items;
    kv_head_ = items[at_].kv_head_begin;
    first_ = 0;
    if (items[at_].next >= 0) fetch_record(items[at_].next, items[at_ ^ 1]);
  }

  // Loads queries, keys and values of the job in a slot, keys a tile ahead of values: their stage is free as soon as
  // their scores are there. Finds the next job meanwhile; returns whether there is one.
  WEFT_INLINE bool load(int slot) {
    const Job& job = Shape::shared().jobs[slot];
    const int num_tiles = job.walk.num_tiles;
    slot_ = slot;
    if constexpr (HeadScales::kThere) {
      if (thread_ == 0) HeadScales::load(Shape::shared().jobs[slot].scales, call_, job.kv_head);
      ptx::cp_async_commit();
    }
    if (num_tiles == 0) {
      settle();
      queries_.wait_for_room();  // outputs leave by way of their stage
      queries_.filled();
      queries_.advance();
      return find_next();
    }
    const Rows<Shape> rows(call_, p_, job);
    loader_.begin(rows, thread_);
    if (untold_ != Copied::nothing) settle();  // the last values of the job before it
    fetch_keys(rows, 0);
    if constexpr (Shape::kQueryStages > 1) fetch_queries(job);
    if (num_tiles > 1) fetch_keys(rows, 1);
    const int finds_at = num_tiles > 2 ? num_tiles - 2 : 0;
    bool more = false;
    WEFT_NO_UNROLL
    for (int step = 0; step < num_tiles; ++step) {
      fetch_values(rows, slot, step);
      if (step == 0) {
        if constexpr (Shape::kQueryStages == 1) fetch_queries(job);
        if (untold_ != Copied::nothing) settle();
      }
      if (step + 2 < num_tiles) fetch_keys(rows, step + 2);
      if (step == finds_at) more = find_next();
    }
    return more;
  }

  // Fills in the job, and tells the warpgroups that multiply.
  WEFT_INLINE void find(const ItemRecord& item, int kv_head, int first, int n, bool ends_item, Job& job) {
    constexpr int kWords = sizeof(ItemRecord) / 16;
    if (thread_ < kWords)
      reinterpret_cast<Bytes16*>(&job.item)[thread_] = reinterpret_cast<const Bytes16*>(&item)[thread_];
    if (thread_ == 0) {
      job.kv_head = kv_head, job.first = first, job.n = n;
      job.number = jobs_.number(), job.first_step = num_steps_;
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
    num_steps_ += static_cast<u32>(job.walk.num_tiles);
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
    if constexpr (Shape::kQueriesAsCopied)
      tell_when_there(queries_);
    else
      copied(Copied::queries);
    queries_.advance();
  }
  WEFT_INLINE void fetch_keys(const Rows<Shape>& rows, int step) {
    loader_.fetch_keys(rows, step, keys_, thread_);
    if constexpr (Shape::kKeysAsCopied)
      tell_when_there(keys_);
    else if constexpr (Shape::kGathers)
      copied(Copied::keys);
    keys_.advance();
  }
  // Of the job in a slot.
  WEFT_INLINE void fetch_values(const Rows<Shape>& rows, int slot, int step) {
    const int tile = rows.tile(step);
    if constexpr (S::kBlockSparse && !Shape::kGathers) sync();  // what the first warp wrote down of it is there
    const bool looks = !rows.is_seen_by_all(tile);
    loader_.fetch_values(rows, step, values_, looks, thread_);
    if (Shape::kValuesAsCopied && !looks) {
      tell_when_there(values_);
    } else if constexpr (Shape::kGathers) {
      copied(Copied::values);
      look_at_ = looks ? Shape::kJobs * tile + slot : -1;
    } else if (looks) {
      settle();
      auto& s = Shape::shared();
      ptx::mbarrier_wait(&s.landed, landed_parity_);
      landed_parity_ ^= 1;
      look(rows, s.jobs[slot], tile, Shape::values_of(values_.stage()));
      ptx::fence_async_shared();
      sync();
      if (thread_ == 0) ptx::mbarrier_arrive(&s.of_values.full[values_.stage()]);
    }
    values_.advance();
  }

  // For copies that are multiplied as they lie: they count at the stage's mbarrier themselves when they land.
  template <class Walk>
  WEFT_INLINE void tell_when_there(const Walk& walk) {
    if (untold_ != Copied::nothing) copied(Copied::nothing);
    walk.fill_behind_copies();
  }
  // For copies of `what` that loaders still change: waits for those before them, and tells of these.
  WEFT_INLINE void copied(Copied what) {
    ptx::cp_async_commit();
    ptx::cp_async_wait<1>();
    tell();
    untold_ = what;
  }
  // Waits for all copies, and tells of the last ones.
  WEFT_INLINE void settle() {
    ptx::cp_async_wait<0>();
    tell();
    untold_ = Copied::nothing;
  }
  // Changes what the copies before have brought as the spec wants it, and tells the warpgroups that multiply.
  WEFT_INLINE void tell() {
    if (untold_ == Copied::queries) {
      const auto there = queries_.previous();
      if constexpr (Shape::H::query_transform) {
        sync();
        transform_queries<Shape>(Rows<Shape>(call_, p_, Shape::shared().jobs[slot_]), there.stage(), thread_);
      }
      there.filled();
    }
    if constexpr (!Shape::kGathers) return;
    if (untold_ == Copied::keys) {
      const auto there = keys_.previous();
      if constexpr (Shape::kConverts) convert<Shape, Shape::kPadQk>(Shape::keys_of(there.stage()), thread_);
      if constexpr (Shape::kTokenScales) leave_out_scale(there.number());
      if constexpr (Shape::H::key_transform) {
        const Job& job = Shape::shared().jobs[slot_];
        const Rows<Shape> rows(call_, p_, job);
        sync();
        transform_keys<Shape>(rows, rows.tile(static_cast<int>(there.number() - job.first_step)), there.stage(),
                              thread_);
      }
      there.filled();
    }
    if (untold_ != Copied::values) return;
    const auto there = values_.previous();
    if constexpr (Shape::kConverts) convert<Shape, Shape::kPadVo>(Shape::values_of(there.stage()), thread_);
    if (Shape::kConverts && look_at_ >= 0) sync();  // others look at what this thread wrote
    if (look_at_ >= 0) {
      Job& job = Shape::shared().jobs[look_at_ % Shape::kJobs];
      look(Rows<Shape>(call_, p_, job), job, look_at_ / Shape::kJobs, Shape::values_of(there.stage()));
    }
    there.filled();
  }

  // A value's scale that is not finite becomes 0, as values do: this thread's, of step `step` of the CTA.
  WEFT_INLINE void leave_out_scale(u32 step) const {
    if (thread_ >= Shape::kKeys) return;
    float& scale = scales_of_step<Shape>(step).of_value[thread_];
    if (mma::is_finite(scale)) return;
    scale = 0;
    ptx::store_relaxed_shared(&Shape::shared().jobs[slot_].not_finite, 1);
  }
  // Looks at the values of a tile that this thread copied: zeros what no row sees, or what is not finite.
  WEFT_INLINE void look(const Rows<Shape>& rows, Job& job, int tile, const typename Shape::Values& values) const {
    using Copy = mma::RowCopy<kThreads, Shape::kPadVo, typename Shape::Values>;
    const Copy own(values, thread_);
    u32 carries = 0;
    WEFT_UNROLL_4
    for (int i = 0; i < Copy::template kCopies<Shape::kKeys>; ++i) {
      if (!own.template has<Shape::kKeys>(i)) continue;
      const Bytes16 chunk = *reinterpret_cast<const Bytes16*>(values.chunk(own.row(i), own.chunk));
      WEFT_UNROLL
      for (const u32 word : chunk.word) carries |= carry_of_non_finite<T>(word);
    }
    if (carries == 0) return;
    bool found = false;
    WEFT_NO_UNROLL
    for (int i = 0; i < Copy::template kCopies<Shape::kKeys>; ++i) {
      if (!own.template has<Shape::kKeys>(i)) continue;
      auto& chunk = *reinterpret_cast<Bytes16*>(values.chunk(own.row(i), own.chunk));
      if (!rows.is_seen(tile, own.row(i))) {
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
  tile::StageWalk<kStages> keys_{Shape::shared().of_keys};
  tile::StageWalk<kStages> values_{Shape::shared().of_values};
  // The job that is found next: rows `first_` on of a KV head of the item whose record is number `at_`.
  int worker_ = 0, at_ = 0, kv_head_ = 0, first_ = 0;
  int found_ = 0, slot_ = 0;  // slots of the job that was found last, and of the one that is loaded
  u32 num_steps_ = 0;         // tiles of all jobs found so far
  Copied untold_ = Copied::nothing;
  // Of untold values that are to be looked at: tile * kJobs + slot of their job; -1: none are.
  int look_at_ = -1;
  u32 landed_parity_ = 0;
};
#endif

}  // namespace weft::attention::cuda::producer
