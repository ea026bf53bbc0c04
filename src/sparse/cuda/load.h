// Code of a card: the kernels of a program, each phase one, launched in order on a stream.
#pragma once

#include "sparse/backend.h"

namespace weft::sparse {

// Throws Error(unsupported) naming the schedule's line for what has no meaning on a card, and what jit/build.h throws.
std::unique_ptr<const Loaded> load_on_card(const Compilation& made, Device device);

}  // namespace weft::sparse
