// The sum of n floats: every CTA sums its share, and the last one to be done adds the shares up, in their order.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/reduce.h"

WEFT_KERNEL(128, 1) void weft_sum(WEFT_PARAM weft::SumArgs args) {
  using namespace weft;
  float* shared = reinterpret_cast<float*>(ptx::shared_memory());
  float x = 0;
  for (int i = ptx::cta_index() * ptx::num_threads() + ptx::thread_index(); i < args.n;
       i += ptx::num_ctas() * ptx::num_threads())
    x += args.x[i];
  const float share = tile::cta_sum(x, shared);
  if (ptx::thread_index() != 0) return;
  args.shares[ptx::cta_index()] = share;
  if (ptx::atomic_add_acq_rel(args.arrived, 1) != static_cast<u32>(ptx::num_ctas()) - 1) return;
  float total = 0;
  for (int cta = 0; cta < ptx::num_ctas(); ++cta) total += args.shares[cta];
  *args.total = total;
  *args.arrived = 0;
}
