// The machine of tests/simt in the place of cards: a runtime that runs the texts it is given, compiled by the host's
// compiler, in three orders of threads. What a kernel does wrong is thrown (simt::Fault).
//
//   use_host_machine();                                          // from now on it is Device::cuda(), and its memory
//   Workspace y(Device::cuda(), 256);
//   const cuda::Runtime& on = cuda::runtime();
//   on.launch(on.load(Device::cuda(), text), text.grid(2), args, {});
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "jit/cuda/runtime.h"
#include "tests/simt/host/compile.h"
#include "tests/simt/machine/machine.h"

namespace weft::testing {

// Kernels have the text's forms for the architecture: "sm_90a" or "sm_75". The first call says which.
void use_host_machine(std::string_view architecture = "sm_90a");

// What its workspaces and tensors lie in.
simt::Memory& host_memory();
void* take_host_memory(size_t bytes);

extern int host_multiprocessors;
extern int host_ctas_of_multiprocessor;  // that one holds at once, whatever they are
extern int host_absent_ctas;             // that launches leave out, the last ones
extern size_t host_most_bytes;           // of a workspace: of more there is no memory
// Of threads; false: in one, for which no memory is copied.
extern bool host_in_all_orders;
// Asked before every launch, where it is set: takes the work for later, or gives false.
extern bool (*defer_launch)(std::function<void()> work);
// Whether launches go into a graph; where it is not set, no.
extern bool (*is_capturing)();
// Told where work on a workspace begins and ends, where it is set.
extern void (*watch_order)(Stream stream, bool begins);
// Told of every launch before it, where it is set.
extern std::function<void(const std::string& symbol, const cuda::Grid& grid, const void* args)> watch_launch;
// What kernels raise where they clamp: a word of the machine's memory, where a test gives one.
extern unsigned* clamped_flag;

}  // namespace weft::testing
