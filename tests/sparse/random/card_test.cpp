// Random programs with random schedules on a card: one is refused, or computes what the program says.
#include <gtest/gtest.h>

#include "tests/sparse/random/card_run.h"
#include "tests/sparse/random/report.h"

namespace weft::sparse::random {
namespace {

TEST(RandomSchedules, OnACardComputeWhatTheProgramSays) { expect_right_on_cards(1, on_card_alone, on_card); }

}  // namespace
}  // namespace weft::sparse::random
