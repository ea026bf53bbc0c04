// Mistakes of the compiler that these tests find. Each entry goes with its mend.
#include <vector>

#include "tests/sparse/random/case.h"

namespace weft::sparse::random {
namespace {

bool says(const Problem& problem, const char* part) { return problem.what.find(part) != std::string::npos; }

const std::vector<Known> kKnown = {
    {"rfactor of a loop that a nest shares moves the init of others in it",
     [](const Case& c, const Problem& p) { return p.kind == "wrong" && c.has("rfactor"); }},
    {"init within a condition of a loop that runs once",
     [](const Case& c, const Problem& p) {
       return p.kind == "wrong" && c.stage1.empty() && c.stage2.empty() && !c.program.iterations[0].where.empty();
     }},
    {"names of searches meet where loops run once",
     [](const Case&, const Problem& p) { return p.kind == "internal error" && says(p, "declared twice"); }},
    {"an access under a condition that never holds is refused",
     [](const Case&, const Problem& p) { return p.kind == "refused" && says(p, "outside of its"); }},
};

}  // namespace

const Known* find_known(const Case& c, const Problem& problem) {
  for (const Known& known : kKnown)
    if (known.is(c, problem)) return &known;
  return nullptr;
}

}  // namespace weft::sparse::random
