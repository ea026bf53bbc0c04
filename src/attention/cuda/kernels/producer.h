// Attention by a producer (sm_90a): one warpgroup of the CTA loads, ahead over all its items, and two others multiply
// by wgmma, 64 rows each. Walk, logits, softmax, states, output and merging are those of mma.h. Hooks of queries and
// keys are the loaders', those of outputs theirs who multiply.
//
//   producer      rows | K0 | Q | K1 | V0 | K2 | V1 | ...        two stages of keys and of values
//   warpgroup 0   S1 | O0 . softmax 1 . . | S2 | O1 . softmax 2
//   warpgroup 1   . softmax 0 | S1 | O0 . softmax 1 . . | S2 | O1
//
// A multiprocessor has one such CTA. The producer keeps few registers; the warpgroups that multiply get the others.
#pragma once

#include "attention/cuda/kernels/plan_copy.h"
#include "attention/cuda/kernels/producer/load.h"
#include "attention/cuda/kernels/producer/multiply.h"
#include "tile/cuda/ptx/registers.h"

namespace weft::attention::cuda {

#if WEFT_SM >= 90
// The template's arguments: as of producer::Shape.
template <class S, class F, int kKeys, int kQueryStages, bool kGathers>
struct Producer {
  using Shape = producer::Shape<S, F, kKeys, kQueryStages, kGathers>;
  static constexpr int kSharedBytes = sizeof(typename Shape::Shared);

  // The whole kernel.
  template <class Args>
  WEFT_INLINE static void run(const Args& args) {
    const Call& call = args.call;
    ptx::allow_next_kernel();  // all CTAs are there at once: the next one's take no room of theirs
    start(call);
    const typename F::P p = F::P::weft_load(args.params);
    if (ptx::thread_index() >= S::kThreads) {
      ptx::decrease_registers<Shape::kRegisters.of_loaders>();
      if constexpr (kGathers)
        producer::Load<Shape, producer::Gathers<Shape>>(call, p, {}).run();
      else
        producer::Load<Shape, producer::Boxes<Shape>>(call, p, {args.k, args.v}).run();
    } else {
      ptx::increase_registers<Shape::kRegisters.of_multipliers>();
      producer::Multiply<Shape>(call, p).run();
    }
    ptx::wait_for_previous_kernel();  // without items, too: who waits for this kernel waits for those before it
  }

 private:
  // The plan's header, the CTA's first item, and barriers.
  WEFT_INLINE static void start(const Call& call) {
    constexpr int kLoaders = Shape::kLoaders, kFillers = kGathers ? kLoaders : 1;
    auto& s = Shape::shared();
    copy_plan(call.plan, 0, &s.scratch.header, sizeof(PlanHeader), ptx::thread_index(), ptx::num_threads());
    // Before it is known that the worker exists: there is room for its record.
    copy_record(call.plan, ptx::cta_index(), s.scratch.items[0], ptx::thread_index(), ptx::num_threads());
    ptx::cp_async_commit();
    if (ptx::thread_index() == 0) {
      s.of_jobs.init(1, S::kThreads);
      s.of_queries.init(kLoaders, S::kThreads);
      s.of_keys.init(kFillers, kProducerGroups);
      s.of_values.init(kFillers, kProducerGroups);
      ptx::mbarrier_init(&s.landed, 1);
      ptx::fence_mbarrier_init();
    }
    ptx::cp_async_wait<0>();
    ptx::cta_sync();
  }
};
#endif

}  // namespace weft::attention::cuda
