#pragma once

#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

WEFT_INLINE void cp_async_16(void* shared, const void* global, int bytes = 16) {
  simt::cp_async_16(shared, global, bytes);
}
WEFT_INLINE void cp_async_commit() { simt::cp_async_commit(); }
template <int pending>
WEFT_INLINE void cp_async_wait() {
  simt::cp_async_wait(pending);
}

}  // namespace weft::ptx
