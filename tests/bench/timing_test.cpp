#include "bench/timing.h"

#include <gtest/gtest.h>

namespace weft::bench {
namespace {

TEST(TimeRuns, MeasuresAsOftenAsAsked) {
  int calls = 0;
  const Timing timing = time_runs([&] { ++calls; }, 7, 0);
  EXPECT_EQ(timing.runs, 7);
  EXPECT_EQ(calls, 8);  // one to warm up
  EXPECT_LE(timing.best_s, timing.median_s);
}

TEST(TimeRuns, EndsWhenAskedTo) {
  static int calls = 0;
  stop_when([] { return true; });
  EXPECT_THROW(time_runs([] { ++calls; }), Stopped);
  EXPECT_EQ(calls, 0) << "a run may take long";
  stop_when([] { return calls > 0; });
  EXPECT_THROW(time_runs([] { ++calls; }), Stopped);
  EXPECT_EQ(calls, 1);
  stop_when([] { return false; });
}

}  // namespace
}  // namespace weft::bench
