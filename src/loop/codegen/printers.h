// The targets of the generator.
//
//   std::string text = cpp_module({convert, compute});   // for jit::host_module
//   std::string text = cuda_module({compute});           // for NVRTC
#pragma once

#include <string>
#include <vector>

#include "loop/ir.h"

namespace weft::loop {

// C++ for gcc and clang. Every phase is
//   extern "C" void weft_NAME_0(void* const* buffers, const long long* scalars, int worker, int workers);
// called by every worker where its outermost loop is parallel, else by one. It includes nothing and calls nothing.
std::string cpp_module(const std::vector<Function>& functions);

// CUDA. Every phase is a kernel
//   extern "C" __global__ void weft_NAME_0(type* buffer..., long long scalar...);
// Bound loops take steps of the grid or the CTA, so any number of either computes the same. Throws Error(unsupported)
// where threads that are bound would repeat what is to be done once.
std::string cuda_module(const std::vector<Function>& functions);

}  // namespace weft::loop
