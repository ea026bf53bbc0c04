#pragma once

#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

#if WEFT_SM >= 90
using CachePolicy = u64;
WEFT_INLINE CachePolicy evict_first() { return 1; }
WEFT_INLINE CachePolicy evict_normal() { return 0; }
WEFT_INLINE CachePolicy evict_last() { return 2; }
WEFT_INLINE void bulk_copy(void* shared, const void* global, u32 bytes, u64* barrier) {
  simt::bulk_copy(shared, global, bytes, barrier);
}
WEFT_INLINE void bulk_copy(void* shared, const void* global, u32 bytes, u64* barrier, CachePolicy) {
  simt::bulk_copy(shared, global, bytes, barrier);
}
WEFT_INLINE void bulk_store(void* global, const void* shared, u32 bytes) { simt::bulk_store(global, shared, bytes); }
WEFT_INLINE void bulk_commit() { simt::bulk_commit(); }
template <int pending>
WEFT_INLINE void bulk_wait_read() {
  simt::bulk_wait_read(pending);
}
template <int pending>
WEFT_INLINE void bulk_wait() {
  simt::bulk_wait(pending);
}
#endif

}  // namespace weft::ptx
