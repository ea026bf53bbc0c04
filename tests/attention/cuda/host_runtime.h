// The machine of tests/simt in the place of cards: it runs the text that the backend makes of a spec, compiled by the host's
// compiler, in three orders of threads, and what a kernel does wrong is thrown (simt::Fault).
#pragma once

#include "attention/cuda/runtime.h"
#include "tests/attention/kernels/target.h"

namespace weft::testing {

// Registers itself for Device::cuda() with the first call.
const Target& host_machine();

}  // namespace weft::testing
