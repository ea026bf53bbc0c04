// Schedules over programs that several tests of them share: their texts of stage II, or how they are refused.
#pragma once

#include <map>
#include <string>

#include "sparse/operators/gather_schedules.h"
#include "tests/sparse/programs.h"
#include "tests/sparse/refusals.h"
#include "weft/sparse.h"

namespace weft::sparse::test::sound_schedules {

using Set = std::map<std::string, int64_t>;

inline const std::string kSteps = steps_program("steps(m, n, nnz)", kCsrAxis);
inline const std::string kSpmm = kSpmmProgram, kSddmm = kSddmmProgram;

// Of a program's loops.
inline std::string stage2_of(const std::string& program, const std::string& schedule, const Set& set = {}) {
  const std::string text =
      compile(parse(program.c_str()), schedule, Device::cpu(), {.set = set, .stop_after = "generate"}).text("stage2");
  return text.substr(text.find("  for "));
}

// In these words, and by the line of the schedule.
inline void expect_refused(const std::string& program, const std::string& schedule, const std::string& says,
                           const Set& set = {}) {
  const std::string message = refusal([&] { stage2_of(program, schedule, set); });
  expect_contains(message, says, schedule);
  expect_contains(message, "line ", schedule);
}

}  // namespace weft::sparse::test::sound_schedules
