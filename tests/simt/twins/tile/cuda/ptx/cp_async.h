#pragma once

#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

#if WEFT_SM >= 80
WEFT_INLINE void cp_async_16(void* shared, const void* global, int bytes = 16) {
  simt::cp_async_16(shared, global, bytes);
}
WEFT_INLINE void cp_async_4(float* shared, const void* global) { simt::cp_async_4(shared, global); }
WEFT_INLINE void cp_async_commit() { simt::cp_async_commit(); }
template <int pending>
WEFT_INLINE void cp_async_wait() {
  simt::cp_async_wait(pending);
}
#else  // at once: accesses as any other, which barriers order
using Chunk = u32 __attribute__((vector_size(16), may_alias));
WEFT_INLINE void cp_async_16(void* shared, const void* global, int bytes = 16) {
  Chunk value = {};
  if (bytes == 16) {
    value = *static_cast<const Chunk*>(global);
  } else {
    for (int i = 0; i < bytes; ++i)
      value[i / 4] |= static_cast<u32>(static_cast<const u8*>(global)[i]) << (8 * (i % 4));
  }
  *static_cast<Chunk*>(shared) = value;
}
WEFT_INLINE void cp_async_4(float* shared, const void* global) { *shared = *static_cast<const float*>(global); }
WEFT_INLINE void cp_async_commit() {}
template <int pending>
WEFT_INLINE void cp_async_wait() {}
#endif
#if WEFT_SM >= 90
WEFT_INLINE void cp_async_arrive(u64* barrier) { simt::cp_async_arrive(barrier); }
#endif

}  // namespace weft::ptx
