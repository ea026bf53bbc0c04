// The kernels of all golden CUDA texts of sparse operators.
#pragma once

namespace weft::simt {

// One of the operator that `golden` is the text of; `call` gives it its arguments, pointers and integers, in order.
struct SparseKernel {
  const char* golden;
  const char* name;
  void (*call)(const long long* arguments);
};
// Of each text in the order of its kernels.
extern const SparseKernel kSparseKernels[];
extern const int kNumSparseKernels;
// How many threads lie along x, the others along y; 0: all of them.
extern unsigned sparse_threads_x;

}  // namespace weft::simt
