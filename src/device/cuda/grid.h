// How a kernel is launched.
//
//   launch(kernel, {.ctas = 132, .threads = 128, .programmatic_launch = true}, stream, args);
#pragma once

namespace weft::cuda {

struct Grid {
  int ctas = 1, threads = 32;  // along x
  int shared_bytes = 0;        // of a CTA
  int cluster = 1;             // CTAs of a cluster, up to 8 that follow each other; from compute capability 9.0 on
  bool cooperative = false;    // all CTAs are resident at once, or the launch fails
  // Launched with programmatic dependent launch (sm_90 and up): it may begin while the kernel before it ends, and
  // itself calls wait_for_previous_kernel() (tile/cuda/ptx/dependent_launch.h).
  bool programmatic_launch = false;
  int ctas_y = 1, ctas_z = 1, threads_y = 1, threads_z = 1;
  int threads_of_cta() const { return threads * threads_y * threads_z; }
};

}  // namespace weft::cuda
