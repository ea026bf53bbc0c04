// CTAs of a cluster that read and write each other's shared memory. All results are integers.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/cluster.h"

// Each CTA sums up what all of its cluster have, the own words first, and gets what the one before it found.
WEFT_KERNEL(256, 1) void weft_cluster(WEFT_PARAM weft::PersistentArgs args) {
  using namespace weft;
  const int me = ptx::thread_index(), cta = ptx::cta_index(), rank = ptx::cluster_rank(), size = ptx::cluster_size();
  u32* const words = reinterpret_cast<u32*>(ptx::shared_memory());
  u32* const found = words + 256;
  words[me] = args.x[256 * cta + me];
  ptx::cluster_sync();
  u32 sum = 0;
  for (int i = 0; i < size; ++i) sum = sum * 31 + ptx::cluster_shared(words, (rank + i) % size)[255 - me];
  ptx::cluster_shared(found, (rank + 1) % size)[me] = sum;
  ptx::cluster_arrive();
  args.y[256 * cta + me] = sum;
  ptx::cluster_wait();
  args.y[256 * cta + me] += found[me];
}
