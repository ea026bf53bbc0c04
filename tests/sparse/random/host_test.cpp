// Random programs with random schedules as text for cards, on the host machine: it is refused, or its kernels compute
// what the program says in every order of their threads, and access nothing else.
#include <gtest/gtest.h>

#include "tests/sparse/random/host_run.h"
#include "tests/sparse/random/report.h"

namespace weft::sparse::random {
namespace {

TEST(RandomSchedules, OnTheHostMachineComputeWhatTheProgramSays) {
  expect_right_on_cards(50, run_on_host_machine, on_host_machine);
}

}  // namespace
}  // namespace weft::sparse::random
