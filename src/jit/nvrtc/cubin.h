// What the kernels of a cubin take of a multiprocessor, read from its sections, and their machine code as text.
//
//   for (const KernelResources& kernel : kernel_resources(cubin)) ... kernel.registers ...
//   const std::string sass = disassemble(cubin);
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::jit {

// Whether a module's bytes are a cubin: what the host's compiler makes is none.
bool is_cubin(std::string_view bytes);

struct KernelResources {
  std::string name;
  int registers = 0;            // of a thread
  int stack_bytes = 0;          // of a thread, in memory: spilled registers and arrays
  int static_shared_bytes = 0;  // of a CTA, beside what its launch gives
};
// In the order of their names. Throws Error(invalid_file) for what is no cubin.
std::vector<KernelResources> kernel_resources(std::string_view cubin);

// SASS with lines of the text, by NVIDIA's nvdisasm or cuobjdump: on PATH, of a toolkit, or of Python's package triton.
// Throws Error(unsupported) where there is neither, Error(invalid_file) for what they refuse, and Error(io_error).
std::string disassemble(std::string_view cubin);

}  // namespace weft::jit
