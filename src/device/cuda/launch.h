// One launch of a kernel, and graphs of many.
//
//   launch(kernel, {.ctas = 132, .threads = 128, .programmatic_launch = true}, stream, args);  // args: the one struct
#pragma once

#include <type_traits>

#include "device/cuda/module.h"

namespace weft::cuda {

struct Grid {
  int ctas = 1, threads = 32;
  int cluster = 1;           // CTAs of a cluster; from compute capability 9.0 on
  bool cooperative = false;  // all CTAs are resident at once, or the launch fails
  // Launched with programmatic dependent launch (sm_90 and up): it may begin while the kernel before it ends, and
  // itself calls wait_for_previous_kernel() (tile/cuda/ptx/dependent_launch.h).
  bool programmatic_launch = false;
};

// Throws Error(device_failed).
void launch_with(const Kernel& kernel, const Grid& grid, api::Stream stream, const void* args);
template <class Args>
void launch(const Kernel& kernel, const Grid& grid, api::Stream stream, const Args& args) {
  static_assert(std::is_trivially_copyable_v<Args>);
  launch_with(kernel, grid, stream, &args);
}

}  // namespace weft::cuda
