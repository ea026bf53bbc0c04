#include "ops/gemm/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "weft/device.h"

namespace weft::gemm {
namespace {

TEST(WorkQueue, GivesEachItemOnceHoweverUnevenTheSharesAre) {
  for (const int workers : {1, 2, 3, 7}) {
    WorkerTeam team(workers);
    WorkQueue queue;
    for (const int64_t items : {int64_t{0}, int64_t{1}, int64_t{6}, int64_t{1000}})
      for (const bool first_has_all : {false, true}) {
        std::vector<std::atomic<int>> given(static_cast<size_t>(items));
        queue.deal(workers, [&](int w) { return first_has_all ? (w == 0 ? 0 : items) : items * w / workers; });
        team.run([&](int worker) {
          for (WorkQueue::Run run; queue.take(worker, run);) {
            EXPECT_LT(run.begin, run.end);
            for (int64_t i = run.begin; i < run.end; ++i) ++given[static_cast<size_t>(i)];
          }
        });
        for (const std::atomic<int>& times : given) ASSERT_EQ(times, 1) << workers << " workers, " << items << " items";
      }
  }
}

TEST(WorkQueue, TakesFromTheFrontOfOnesOwnShareAndFromTheBackOfTheLongest) {
  WorkQueue queue;
  const int64_t borders[] = {0, 2, 10, 26};
  queue.deal(3, [&](int w) { return borders[w]; });
  WorkQueue::Run run;
  const auto expect = [&](int worker, int64_t begin, int64_t end) {
    ASSERT_TRUE(queue.take(worker, run));
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
