// Cases on a card, each compiled and run as a caller does it.
#pragma once

#include "tests/sparse/random/case.h"

namespace weft::sparse::random {

// Two runs: each computes what the program says and writes nothing beside its tensors, and both give the same bits,
// where no sum is added to by threads in any order. "refused": the schedule has no code for cards; "lost card": a
// kernel failed, and with it all that this process would run later.
Problem on_card(const Case& c);
inline std::vector<Problem> on_card_alone(const std::vector<Case>& cases) { return {on_card(cases.at(0))}; }

}  // namespace weft::sparse::random
