#include "device/cpu/futex.h"

#include <gtest/gtest.h>

#include <thread>

namespace weft {
namespace {

int waits_until(const SpinPolicy& policy, bool patient, auto&& wait) {
  int waits = 0;
  while (policy.patient() != patient && waits < 1000) wait(), ++waits;
  return waits;
}

TEST(SpinPolicy, LosesPatienceWhenSpinningIsInVain) {
  SpinPolicy policy(2, false);
  EXPECT_TRUE(policy.patient());
  EXPECT_LE(waits_until(policy, false, [&] { policy.in_vain(true); }), 16);
}

TEST(SpinPolicy, KeepsPatienceWhileTwoOfThreeSpinsPay) {
  SpinPolicy policy(2, false);
  for (int i = 0; i < 1000; ++i) {
    policy.paid();
    policy.paid();
    policy.in_vain(true);
    ASSERT_TRUE(policy.patient());
  }
}

TEST(SpinPolicy, TriesAgainAfterAWhileAndGivesUpSoonWhenItIsStillInVain) {
  SpinPolicy policy(2, false);
  waits_until(policy, false, [&] { policy.in_vain(true); });
  EXPECT_EQ(waits_until(policy, true, [&] { policy.in_vain(false); }), 64);
  EXPECT_EQ(waits_until(policy, false, [&] { policy.in_vain(true); }), 3);
}

TEST(SpinPolicy, IsPatientAgainOnceSpinningPays) {
  SpinPolicy policy(2, false);
  waits_until(policy, false, [&] { policy.in_vain(true); });
  waits_until(policy, true, [&] { policy.in_vain(false); });
  for (int i = 0; i < 40; ++i) policy.paid();
  EXPECT_GE(waits_until(policy, false, [&] { policy.in_vain(true); }), 10);
}

TEST(SpinPolicy, NeverSpinsForLongWithMoreWorkersThanCpus) {
  SpinPolicy policy(8, true);
  for (int i = 0; i < 10000; ++i) {
    policy.in_vain(false);
    ASSERT_FALSE(policy.patient());
  }
}

TEST(WaitUntil, WakesASleeperWhateverTheOrder) {
  SpinPolicy policy(2, true);
  std::atomic<uint32_t> ball{0};
  const auto play = [&](uint32_t mine, uint32_t theirs) {
    for (uint32_t turn = 0; turn < 500; ++turn) {
      const uint32_t awaited = 4 * turn + mine;
      wait_until(ball, policy, [&](uint32_t value) { return (value & ~kSleepers) == awaited; });
      if (turn % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));  // the other sleeps by now
      wake_sleepers(ball, ball.exchange(4 * turn + theirs));
    }
  };
  std::thread other([&] { play(2, 4); });
  play(0, 2);
  other.join();
  EXPECT_EQ(ball & ~kSleepers, 2000u);
}

}  // namespace
}  // namespace weft
