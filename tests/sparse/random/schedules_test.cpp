// Random programs with random schedules: a line is refused, or what is computed stays exactly what the program says.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/sparse/random/compiled.h"
#include "tests/sparse/random/report.h"
#include "tests/support/sanitizers.h"

namespace weft::sparse::random {
namespace {

TEST(RandomSchedules, InterpretedComputeWhatTheProgramSays) {
  const std::vector<uint64_t> seeds = testing::case_seeds(testing::kUnderSanitizer ? 60 : 1000);
  Tally tally;
  Findings findings;
  Progress progress(seeds.size());
  size_t refused = 0;
  for (size_t i = 0; i < seeds.size() && !findings.are_enough(); ++i) {
    progress.show(i);
    Random random(seeds[i]);
    const MadeCase made = make_case(random, tally);
    if (!made.problem) tally.add_case(made.c);
    if (made.problem.kind == "refused")
      ++refused;
    else if (made.problem)
      findings.add(
          i, made.c, made.problem, [](const Case& c) { return accepted(c); }, 400);
    else if (const Problem problem = interpreted(made.c))
      findings.add(i, made.c, problem, interpreted, 400);
  }
  std::cout << tally.text();
  EXPECT_LE(refused, seeds.size() / 5 + 1) << "programs that are refused without any schedule";
  if (!findings.are_enough()) expect_all_accepted(tally);
}

TEST(RandomSchedules, CompiledComputeWhatTheProgramSays) {
  const std::vector<uint64_t> seeds = testing::case_seeds(testing::kUnderSanitizer ? 5 : 100);
  Tally tally;
  Findings findings;
  run_in_files(seeds, 50, tally, [&](const std::vector<Case>& cases, const std::vector<size_t>& numbers) {
    const std::vector<Problem> problems = run_compiled(cases);
    for (size_t i = 0; i < cases.size(); ++i) {
      tally.add_case(cases[i]);
      if (problems[i] && problems[i].kind != "refused") findings.add(numbers[i], cases[i], problems[i], compiled, 60);
    }
    return !findings.are_enough();
  });
  std::cout << tally.text();
  if (!findings.are_enough()) expect_all_accepted(tally);
}

}  // namespace
}  // namespace weft::sparse::random
