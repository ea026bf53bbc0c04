// Random programs with random schedules on a card: one is refused, or computes what the program says.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/sparse/random/card_run.h"
#include "tests/sparse/random/report.h"

namespace weft::sparse::random {
namespace {

TEST(RandomSchedules, OnACardComputeWhatTheProgramSays) {
  Tally tally;
  Findings findings;
  size_t refused = 0;
  run_in_files(testing::case_seeds(100), 1, tally,
               [&](const std::vector<Case>& cases, const std::vector<size_t>& numbers) {
                 const Problem problem = on_card(cases[0]);
                 if (problem.kind == "refused") {
                   ++refused;
                   return true;
                 }
                 tally.add_case(cases[0]);
                 const bool is_lost = problem.kind == "lost card";  // there is no smaller case then
                 if (problem) findings.add(numbers[0], cases[0], problem, on_card, is_lost ? 0 : 40);
                 return !is_lost && !findings.are_enough();
               });
  std::cout << tally.text();
  std::cout << refused << " cases have no code for this card\n";
  if (!HasFailure()) expect_all_accepted(tally);
}

}  // namespace
}  // namespace weft::sparse::random
