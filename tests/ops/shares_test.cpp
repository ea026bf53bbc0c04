#include "ops/gemm/shares.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "weft/device.h"

namespace weft::gemm {
namespace {

TEST(Shares, GiveEachItemOnceHoweverUnevenTheyAre) {
  for (const int workers : {1, 2, 3, 7}) {
    WorkerTeam team(workers);
    Shares shares;
    for (const int64_t items : {int64_t{0}, int64_t{1}, int64_t{6}, int64_t{1000}})
      for (const bool first_has_all : {false, true}) {
        std::vector<std::atomic<int>> given(static_cast<size_t>(items));
        shares.deal(workers, [&](int w) { return first_has_all ? (w == 0 ? 0 : items) : items * w / workers; });
        team.run([&](int worker) {
          for (Shares::Run run; shares.take(worker, run);) {
            EXPECT_LT(run.begin, run.end);
            for (int64_t i = run.begin; i < run.end; ++i) ++given[static_cast<size_t>(i)];
          }
        });
        for (const std::atomic<int>& times : given) ASSERT_EQ(times, 1) << workers << " workers, " << items << " items";
      }
  }
}

TEST(Shares, ComeFromTheFrontOfOnesOwnAndFromTheBackOfTheLongest) {
  Shares shares;
  const int64_t borders[] = {0, 2, 10, 26};
  shares.deal(3, [&](int w) { return borders[w]; });
  Shares::Run run;
  const auto expect = [&](int worker, int64_t begin, int64_t end) {
    ASSERT_TRUE(shares.take(worker, run));
    EXPECT_EQ(run.begin, begin);
    EXPECT_EQ(run.end, end);
  };
  expect(0, 0, 1);
  expect(0, 1, 2);
  expect(0, 18, 26);  // of 10 .. 26
  expect(1, 2, 4);
  expect(2, 10, 12);
  expect(0, 7, 10);  // both others have 6 left: the first of them
}

}  // namespace
}  // namespace weft::gemm
