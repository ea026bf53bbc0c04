#pragma once

#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

#if WEFT_SM >= 90
WEFT_INLINE int cluster_rank() { return simt::cluster_rank(); }
WEFT_INLINE int cluster_size() { return simt::cluster_size(); }
WEFT_INLINE void cluster_arrive() { simt::cluster_arrive(); }
WEFT_INLINE void cluster_arrive_relaxed() { simt::cluster_arrive(); }
WEFT_INLINE void cluster_wait() { simt::cluster_wait(); }
WEFT_INLINE void cluster_sync() {
  simt::cluster_arrive();
  simt::cluster_wait();
}
template <class T>
WEFT_INLINE T* cluster_shared(T* own, int rank) {
  return static_cast<T*>(const_cast<void*>(simt::cluster_shared(own, rank)));
}
#endif

}  // namespace weft::ptx
