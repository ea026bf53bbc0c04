#include "ops/cuda/launch.h"

#include <algorithm>

#include "jit/cuda/runtime.h"

namespace weft::ops {

void launch_with(Device device, const cuda::KernelText& of, const CardLaunch& how, Stream stream, const void* args,
                 size_t bytes) {
  if (how.ctas <= 0) return;
  const cuda::Runtime& on = cuda::runtime();
  const cuda::LoadedKernel& kernel = on.load(device, of);
  cuda::Grid grid{.threads = of.threads, .shared_bytes = how.shared_bytes, .programmatic_launch = true};
  // All of them are there at once.
  const int64_t most = int64_t{on.ctas_per_multiprocessor(kernel, grid)} * on.num_multiprocessors(device);
  grid.ctas = static_cast<int>(std::min(how.ctas, std::max<int64_t>(most, 1)));
  on.launch(kernel, grid, args, bytes, stream);
}

int ctas_of_cluster(const cuda::LoadedKernel& kernel, const cuda::Grid& of_cta, Device device, int64_t works,
                    int64_t most) {
  const cuda::Runtime& on = cuda::runtime();
  if (on.architecture(device) < "sm_90") return 1;
  const int64_t at_once = int64_t{on.ctas_per_multiprocessor(kernel, of_cta)} * on.num_multiprocessors(device);
  int ctas = 1;
  while (2 * ctas <= most && 2 * ctas * works <= at_once) ctas *= 2;
  return ctas;
}

}  // namespace weft::ops
