// The machine of tests/simt in the place of cards: it runs the text that the backend makes of a spec, compiled by the
// host's compiler, in three orders of threads, and what a kernel does wrong is thrown (simt::Fault).
#pragma once

#include <functional>
#include <string>

#include "tests/attention/kernels/target.h"
#include "tests/simt/machine/machine.h"

namespace weft::testing {

// Registers itself for Device::cuda() with the first call.
const Target& host_machine();
// What its workspaces and tensors lie in.
simt::Memory& host_memory();
// Asked before every launch, where it is set: takes the work for later, or gives false.
extern bool (*defer_launch)(std::function<void()> work);
// Whether launches go into a graph; where it is not set, no.
extern bool (*is_capturing)();
// Told where work on a workspace begins and ends, where it is set.
extern void (*watch_order)(Stream stream, bool begins);
// What kernels raise where they clamp: a word of the machine's memory, where a test gives one.
extern unsigned* clamped_flag;

// Kernels made from now on have one place of a header of attention/cuda/kernels changed; without a file they are as
// they are.
struct Breakage {
  std::string file, from, to;
};
void break_kernels(const Breakage& breakage);

}  // namespace weft::testing
