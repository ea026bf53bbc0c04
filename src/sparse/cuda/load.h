// Code of a card: the kernels of a program, each phase one, launched in order on a stream.
#pragma once

#include "sparse/backend.h"

namespace weft::sparse {

// An array of a structure comes to a card once, whoever asks; the host waits for that.
const int32_t* array_on_card(const Structure::Data& structure, const std::vector<int32_t>& array, Device device);
// Throws Error(unsupported) naming the schedule's line for what has no meaning on a card, and what jit/build.h throws.
std::unique_ptr<const Loaded> load_on_card(const Compilation& made, Device device);

}  // namespace weft::sparse
