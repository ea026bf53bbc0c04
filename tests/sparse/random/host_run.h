// Cases as text for cards, which threads of a GPU on the host run (tests/simt): no access outside, no race, the same
// from every order of threads.
#pragma once

#include "tests/sparse/random/compiled.h"

namespace weft::sparse::random {

// Many in one text, one problem for each. "refused": the schedule has no text for cards.
std::vector<Problem> run_on_host_machine(const std::vector<Case>& cases);
inline Problem on_host_machine(const Case& c) { return run_on_host_machine({c})[0]; }

}  // namespace weft::sparse::random
