// Some of the plan's bytes on their way to shared memory, by cp.async of as many threads: they are there once the
// copies have landed and the threads have met.
#pragma once

#include "attention/cuda/kernels/args.h"
#include "tile/cuda/ptx/cp_async.h"

namespace weft::attention::cuda {

// A multiple of 16.
WEFT_INLINE void copy_plan(const PlanHeader* plan, i64 offset, void* to, int bytes, int thread, int threads) {
  const char* const from = reinterpret_cast<const char*>(plan) + offset;
  for (int at = thread * 16; at < bytes; at += threads * 16) ptx::cp_async_16(static_cast<char*>(to) + at, from + at);
}
WEFT_INLINE void copy_record(const PlanHeader* plan, int index, ItemRecord& to, int thread, int threads) {
  constexpr int kBytes = sizeof(ItemRecord);
  copy_plan(plan, kRecordsOffset + static_cast<i64>(index) * kBytes, &to, kBytes, thread, threads);
}

}  // namespace weft::attention::cuda
