// The targets of the generator.
//
//   std::string text = cpp_module({split_launches(convert), split_launches(compute)});  // for jit::host_module
//   std::string text = cuda_module({split_threads(split_launches(compute))});           // for NVRTC
#pragma once

#include <string>
#include <vector>

#include "loop/passes.h"

namespace weft::loop {

// C++ for gcc and clang. Every phase is
//   extern "C" void weft_NAME_0(void* const* buffers, const long long* scalars, int worker, int workers);
// called by every worker where its outermost loop is parallel, else by one. `scalars` are the integers, and the bits of
// real parameters as doubles. It includes nothing and calls nothing.
std::string cpp_module(const std::vector<Launches>& functions);

// CUDA. Every phase, as split_threads() makes it, is a kernel
//   extern "C" __global__ void weft_NAME_0(type* buffer..., long long weft_integer_PARAMETER...,
//                                          double weft_real_PARAMETER...);
// of buffers that begin at multiples of 16 bytes, where they are read several elements at a time: `wide` gets their
// names, for each function.
// Integers are computed in 32 bits where ranges and conditions prove that they fit (loop/ranges.h), parameters being at
// most kMostOfParameter; places of elements, in 64.
// Bound loops take steps of the grid or the CTA, so any number of either computes the same; a launch has several along
// the axes that loops are bound to, and along x, alone. Reductions over threads (loop/threads.h) want a power of two up
// to 32 along x, or whole warps; where other loops over threads stand around them, at most 32. Shared memory is what
// the launch gives, as many bytes as the kernel's first line says. Throws Error(unsupported) for more of it than every
// launch may ask for.
// Behind cuda_head(): kernels with fragments are launched with kFragmentThreads along x alone
// (loop/threads/fragments.h).
std::string cuda_module(const std::vector<Launches>& kernels, std::vector<Names>* wide = nullptr);

// What stands before the text of kernels that multiply by tensor cores, from sm_80 on: a header, from src/ on, and its
// complete text, a literal. Both are "" where none does.
struct CudaHead {
  const char* file = "";
  const char* text = "";
};
CudaHead cuda_head(const std::vector<Launches>& kernels);

}  // namespace weft::loop
