// Launches of the operators' kernels, compiled when one is first asked for.
//
//   launch(device, norm_kernel(), {.ctas = 8}, stream, NormArgs{...});
#pragma once

#include <type_traits>

#include "jit/cuda/kernel_text.h"
#include "jit/cuda/runtime.h"
#include "weft/device.h"

namespace weft::ops {

struct CardLaunch {
  int64_t ctas = 1;
  int shared_bytes = 0;
};
// It may begin while the kernel before it ends. CTAs beyond what the device holds at once have their work done by the
// others.
void launch_with(Device device, const cuda::KernelText& kernel, const CardLaunch& how, Stream stream, const void* args,
                 size_t bytes);
template <class Args>
void launch(Device device, const cuda::KernelText& kernel, const CardLaunch& how, Stream stream, const Args& args) {
  static_assert(std::is_trivially_copyable_v<Args>);
  launch_with(device, kernel, how, stream, &args, sizeof args);
}

// CTAs of a cluster for each of `works`, a power of two up to `most`: so many that the device holds all of them at
// once, or one. 1 before sm_90.
int ctas_of_cluster(const cuda::LoadedKernel& kernel, const cuda::Grid& of_cta, Device device, int64_t works,
                    int64_t most);

}  // namespace weft::ops
