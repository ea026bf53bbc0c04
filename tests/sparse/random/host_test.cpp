// Random programs with random schedules as text for cards, on the host machine: it is refused, or its kernels compute
// what the program says in every order of their threads, and access nothing else.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/sparse/random/host_run.h"
#include "tests/sparse/random/report.h"

namespace weft::sparse::random {
namespace {

TEST(RandomSchedules, OnTheHostMachineComputeWhatTheProgramSays) {
  Tally tally;
  Findings findings;
  size_t refused = 0;
  run_in_files(testing::case_seeds(100), 50, tally,
               [&](const std::vector<Case>& cases, const std::vector<size_t>& numbers) {
                 const std::vector<Problem> problems = run_on_host_machine(cases);
                 for (size_t i = 0; i < cases.size(); ++i) {
                   if (problems[i].kind == "refused") {
                     ++refused;
                     continue;
                   }
                   tally.add_case(cases[i]);
                   if (problems[i]) findings.add(numbers[i], cases[i], problems[i], on_host_machine, 40);
                 }
                 return !findings.are_enough();
               });
  std::cout << tally.text();
  std::cout << refused << " cases have no text for cards\n";
  if (!findings.are_enough()) expect_all_accepted(tally);
}

}  // namespace
}  // namespace weft::sparse::random
