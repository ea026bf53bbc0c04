// Programmatic dependent launch: a kernel may begin while the one before it in the stream ends. Before sm_90 it never
// does, and there is nothing to say.
#pragma once

#include "tile/cuda/ptx/target.h"

namespace weft::ptx {

// Until all that the kernel before this one wrote is there.
WEFT_INLINE void wait_for_previous_kernel() {
#if WEFT_SM >= 90
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may begin; it still waits for this one's end before it reads what this one writes.
WEFT_INLINE void allow_next_kernel() {
#if WEFT_SM >= 90
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace weft::ptx
