// Kernels of a text, compiled for a card's architecture and loaded on it.
//
//   const CudaModule loaded = cuda_module(card, "attend hd128", text);
//   const cuda::Kernel kernel = cuda::find_kernel(*loaded.module, "weft_attend", shared_bytes);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/cuda/module.h"
#include "jit/build.h"

namespace weft::jit {

struct CudaModule {
  std::shared_ptr<const cuda::Module> module;
  Origin origin = Origin::memory;
};
// Built and loaded once a process and card: modules stay, as graphs hold their kernels. Throws like build, and
// Error(unsupported) for a card that no cubin is made for.
CudaModule cuda_module(cuda::Card& card, const std::string& name, const std::string& text,
                       const std::vector<std::string>& flags = {});

}  // namespace weft::jit
