// What the kernels of a cubin take of a multiprocessor, read from its sections.
//
//   for (const KernelResources& kernel : kernel_resources(cubin)) ... kernel.registers ...
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::jit {

struct KernelResources {
  std::string name;
  int registers = 0;            // of a thread
  int stack_bytes = 0;          // of a thread, in memory: spilled registers and arrays
  int static_shared_bytes = 0;  // of a CTA, beside what its launch gives
};
// In the order of their names. Throws Error(invalid_file) for what is no cubin.
std::vector<KernelResources> kernel_resources(std::string_view cubin);

}  // namespace weft::jit
