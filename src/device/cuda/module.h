// Kernels of a cubin, loaded on one card.
//
//   Module module = load_module(card, cubin, "attend hd128");
//   Kernel kernel = find_kernel(module, "weft_attend", most_shared_bytes);
#pragma once

#include <cstdint>
#include <string>

#include "device/cuda/grid.h"
#include "device/cuda/handle.h"

namespace weft::cuda {

struct Module {
  std::string name;  // for people
  Handle<api::Module, &Driver::module_unload> handle = {};
};
// Throws Error(unsupported) for a cubin that is not for this card.
Module load_module(Card& card, const std::string& cubin, const std::string& name);

// It belongs to its module.
struct Kernel {
  Card* card = nullptr;
  std::string name;  // of the module
  api::Function function = nullptr;
  int most_shared_bytes = 0;  // that a launch may give a CTA
  int max_threads = 0, registers = 0;
  int local_bytes = 0;    // of a thread, in memory: spilled registers and arrays
  int num_arguments = 0;  // of 8 bytes each; 0: one, a struct
};
// What a multiprocessor's memory is for, beside what a launch gives its CTAs.
enum class Carveout : uint8_t { shared_memory, cache };
// Throws Error(unsupported) where the card has less shared memory.
Kernel find_kernel(const Module& module, const char* symbol, int most_shared_bytes,
                   Carveout carveout = Carveout::shared_memory);
// CTAs of the grid's threads and shared memory that a multiprocessor holds at once.
int ctas_per_multiprocessor(const Kernel& kernel, const Grid& grid);

}  // namespace weft::cuda
