// A kernel for a card as text: what many kernels share, which the build embeds (weft_kernel_texts), and behind it what
// makes this one of it.
//
//   const KernelText text{.name = "norm sm_90a",
//                         .symbol = "weft_norm",
//                         .file = "ops/cuda/kernels/elementwise.h",
//                         .head = text::ops_elementwise,
//                         .threads = 256};
//   const LoadedKernel& kernel = runtime().load(device, text);          // jit/cuda/runtime.h
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "device/cuda/module.h"

namespace weft::cuda {

struct KernelText {
  std::string name;                   // for people: in lists of the cache, in errors of launches
  std::string symbol;                 // of the kernel
  const char* file = "";              // from src/ on, that the head is the text of; empty: the instances are all
  const char* head = "";              // complete: it includes nothing. A literal, told by its address
  std::string instances{};            // behind the head
  std::vector<std::string> flags{};   // of the compiler, beside those of every kernel
  int threads = 0, shared_bytes = 0;  // of a CTA; shared memory: the most that a launch may give it
  int num_arguments = 0;              // of 8 bytes each; 0: one, a struct
  Carveout carveout = Carveout::shared_memory;

  std::string text() const { return head + instances; }
  friend bool operator==(const KernelText&, const KernelText&) = default;
  size_t hash() const { return std::hash<std::string>()(symbol) * 31 + std::hash<std::string>()(instances); }
  // A launch with all of its shared memory.
  Grid grid(int ctas) const { return {.ctas = ctas, .threads = threads, .shared_bytes = shared_bytes}; }
};

}  // namespace weft::cuda
