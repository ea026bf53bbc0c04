// CTAs of a cluster (Grid::cluster, from sm_90 on): they run at the same time, wait for each other, and read and write
// each other's shared memory. Without clusters a CTA is one of its own.
//
//   cluster_sync();                                       // all have begun
//   const float x = cluster_shared(row, rank)[i];         // of the CTA with that rank
//   cluster_sync();                                       // nobody ends while others read its shared memory
#pragma once

#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

#if WEFT_SM >= 90
WEFT_INLINE int cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
WEFT_INLINE int cluster_size() {
  u32 size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return static_cast<int>(size);
}
// All threads of the cluster: each arrives once and then waits; what was written before the former is read behind the
// latter.
WEFT_INLINE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
// The same, and orders nothing: that all have begun.
WEFT_INLINE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
WEFT_INLINE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
WEFT_INLINE void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}
// What lies in the shared memory of the CTA with that rank where `own` lies in this one's.
template <class T>
WEFT_INLINE T* cluster_shared(T* own, int rank) {
  u64 there;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(own), "r"(rank));
  return reinterpret_cast<T*>(there);
}
#endif

}  // namespace weft::ptx
