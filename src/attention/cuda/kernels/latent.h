// Latent attention (MLA) by warpgroups, sm_90a: one row a token is key and value of all heads, so that 64 rows, which
// are heads times query tokens, share it. A tile of 64 latent rows comes to shared memory once, and both products read
// it there. Outputs of 512 columns are half of a multiprocessor's registers: two warpgroups have half the columns each,
// of all rows, and share the work on scores (latent/products.h). A third one loads (latent/loader.h).
//
// All else is as in mma.h, and of the same text: rows, walk, logits, softmax, stores, values that are not finite.
#pragma once

#include "attention/cuda/kernels/latent/loader.h"
#include "attention/cuda/kernels/latent/products.h"
#include "attention/cuda/kernels/mma/store.h"
#include "tile/cuda/ptx/dependent_launch.h"
#include "tile/cuda/ptx/registers.h"

namespace weft::attention::cuda {

#if WEFT_SM >= 90
namespace latent {

template <class S_, class F_>
class Attention {
  using S = S_;
  using F = F_;
  using Shape = latent::Shape<S, F>;
  using P = typename F::P;

 public:
  static constexpr int kSharedBytes = sizeof(typename Shape::Shared);

  WEFT_INLINE static void attend(const Call& call, const P& p, const ItemRecord& item) {
    for_row_tiles<Shape::kRows>(call, item, [&](int kv_head, int first, int n) {
      if (first / Shape::kRows % S::kPartners == ptx::cta_index() % S::kPartners)
        Attention({call, p, item, kv_head, first, n}).attend();
    });
  }

 private:
  WEFT_INLINE explicit Attention(const mma::Rows<Shape>& rows) : rows_(rows) {}

  // The rows of a tile against the item's keys.
  WEFT_INLINE void attend() {
    start();
    ptx::wait_for_previous_kernel();  // which makes queries, keys and values, and no plan
    load_queries();
    bool done_again;
    if (thread_.loads()) {
      ptx::decrease_registers<Shape::kOfLoaders>();
      done_again = load();
      ptx::named_sync(kLoadersMeet, Shape::kLoaders);  // between two changes of registers
      ptx::increase_registers<Shape::kRegisters>();
    } else {
      ptx::increase_registers<Shape::kOfProducts>();
      done_again = multiply();
      ptx::decrease_registers<Shape::kRegisters>();
    }
    mma::NonFinite<Shape>(done_again).add(rows_, thread_, mma::Stored<Shape>(rows_));
    ptx::cta_sync();
    if (thread_.index == 0) end_barriers();
    ptx::cta_sync();
  }

  // Rows, and what they see.
  WEFT_INLINE void start() {
    auto& s = Shape::shared();
    rows_.load(thread_);
    if (thread_.index == 0) {
      ptx::mbarrier_init(&s.queries_are_there, Shape::kWarps);
      s.first_columns.init(Shape::kLoaders / 32, Shape::kGroups);
      s.other_columns.init(Shape::kLoaders / 32, Shape::kGroups);
    }
    const int end = end_of(rows_.call, rows_.item);
    ptx::cta_sync();
    if (thread_.warp == 0) rows_.find_visible(end);
    if (thread_.index == Shape::kProductThreads) s.tokens = Tokens<S>(rows_.call, rows_.item);
    ptx::cta_sync();
  }
  // By all threads, on their way behind their backs.
  WEFT_INLINE void load_queries() const {
    u64* const there = &Shape::shared().queries_are_there;
    rows_.load_queries(thread_);
    ptx::cp_async_arrive(there);
    ptx::warp_sync();
    if (thread_.lane == 0) ptx::mbarrier_arrive(there);
  }
  WEFT_INLINE static void end_barriers() {
    auto& s = Shape::shared();
    ptx::mbarrier_inval(&s.queries_are_there);
    s.first_columns.end();
    s.other_columns.end();
  }

  // The two ways that threads take; either says whether all was done twice.
  WEFT_INLINE bool load() {
    Loader<Shape> loader(rows_, thread_);
    loader.load();
    const bool again = is_to_be_done_again();
    if (again) loader.load();
    return again;
  }
  WEFT_INLINE bool multiply() {
    mma::States<Shape> states;
    Products<Shape> products(rows_, thread_, states);
    ptx::mbarrier_wait(&Shape::shared().queries_are_there, 0);
    bool again = false;
    while (true) {
      products.multiply();
      if (again) break;
      if (rows_.may_differ()) say_whether_finite(states);
      if (!is_to_be_done_again()) break;
      again = true;
      products.leave_out_non_finite();
    }
    join_sums(states);
    mma::Store<Shape>(rows_, thread_, states, Shape::staging(thread_)).store();
    return again;
  }

  WEFT_INLINE void say_whether_finite(const mma::States<Shape>& states) const {
    const bool found = states.has_non_finite();
    if (thread_.lane == 0) Shape::shared().not_finite[thread_.warp] = found;
  }
  // By all threads: values that are not finite may have reached rows that do not see them.
  WEFT_INLINE bool is_to_be_done_again() const {
    if (!rows_.may_differ()) return false;
    ptx::named_sync(kAllThreadsMeet, Shape::kThreads);
    bool found = false;
    WEFT_UNROLL
    for (int w = 0; w < 8; ++w) found = found || Shape::shared().not_finite[w] != 0;
    return found;
  }

  // Each warpgroup has a part of every row's sum: the first lane of a row gets all of it. Behind this the queries are
  // no longer needed.
  WEFT_INLINE void join_sums(mma::States<Shape>& states) const {
    auto& s = Shape::shared();
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float own = states.rows[0].total(half);
      if (thread_.lane % 4 == 0) s.sum[thread_.group()][thread_.row(0, half)] = own;
    }
    ptx::named_sync(kProductThreadsMeet, Shape::kProductThreads);
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int r = thread_.row(0, half);
      states.rows[0].sum[half] = thread_.lane % 4 == 0 ? s.sum[0][r] + s.sum[1][r] : 0.f;
    }
  }

  const mma::Rows<Shape> rows_;
  mma::Thread<Shape> thread_;
};

}  // namespace latent

template <class S, class F>
using Latent = latent::Attention<S, F>;
#endif

}  // namespace weft::attention::cuda
