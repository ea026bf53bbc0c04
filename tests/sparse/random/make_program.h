// Random programs: axes of every kind, one to four iterations that read what those before them wrote, sums, maxima,
// updates whose order matters, reads of what other points of the loop write.
//
//   Random random(seed);
//   ProgramDef program = make_program(random);      // computes something that can be compared
#pragma once

#include "tests/sparse/random/program.h"
#include "tests/support/random_cases.h"

namespace weft::sparse::random {

using testing::Random;

struct ProgramOptions {
  bool may_fail = false;  // writes of what is absent, divisions by zero
};
ProgramDef make_program(Random& random, const ProgramOptions& options = {});

// Adds axes of one of several layouts, and the parameters that say how long they are.
void make_axes(Random& random, ProgramDef& program);

// A random expression of the type, of at most `depth` operations one in the other; leaves are what `leaf` makes.
Term make_term(Random& random, char type, int depth, const std::function<Term(char type)>& leaf);

}  // namespace weft::sparse::random
