// Sums and maxima over the lanes of a warp and the threads of a CTA; every thread has the result. The order of sums is
// fixed.
#pragma once

#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/math.h"
#include "tile/cuda/ptx/shuffle.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::tile {

// Over groups of kLanes neighbouring lanes, a power of two; all lanes of the warp call.
template <int kLanes = 32>
WEFT_INLINE float lane_sum(float x) {
  WEFT_UNROLL
  for (int mask = kLanes / 2; mask > 0; mask /= 2) x += ptx::shuffle_xor(x, mask);
  return x;
}
template <int kLanes = 32>
WEFT_INLINE float lane_max(float x) {
  WEFT_UNROLL
  for (int mask = kLanes / 2; mask > 0; mask /= 2) x = ptx::larger(x, ptx::shuffle_xor(x, mask));
  return x;
}
// Over the CTA; `shared` has a float a warp, and is free again behind the next barrier.
WEFT_INLINE float cta_sum(float x, float* shared) {
  x = lane_sum(x);
  if (ptx::lane() == 0) shared[ptx::warp()] = x;
  ptx::cta_sync();
  float sum = 0;
  for (int warp = 0; warp < ptx::num_threads() / 32; ++warp) sum += shared[warp];
  return sum;
}

}  // namespace weft::tile
