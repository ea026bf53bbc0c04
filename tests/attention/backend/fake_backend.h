// A second backend in the least code: one device of kind cuda whose pointers are offsets, so that host code which reads
// a tensor or a workspace faults. Plain attention in fp32 over every form that a page table or a token axis has.
#pragma once

#include "tests/attention/kernels/target.h"

namespace weft::testing {

// Registers the backend and its memory with the first call.
const Target& fake_target();

}  // namespace weft::testing
