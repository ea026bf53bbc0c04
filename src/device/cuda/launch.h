// One launch of a kernel.
//
//   launch(kernel, {.ctas = 132, .threads = 128, .programmatic_launch = true}, stream, args);  // args: the one struct
#pragma once

#include <type_traits>

#include "device/cuda/grid.h"
#include "device/cuda/module.h"

namespace weft::cuda {

// `args`: the kernel's one argument, or all of its 8 bytes each, one behind another. Throws Error(device_failed).
void launch_with(const Kernel& kernel, const Grid& grid, api::Stream stream, const void* args);
template <class Args>
void launch(const Kernel& kernel, const Grid& grid, api::Stream stream, const Args& args) {
  static_assert(std::is_trivially_copyable_v<Args>);
  launch_with(kernel, grid, stream, &args);
}

}  // namespace weft::cuda
