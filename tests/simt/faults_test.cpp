// The machine finds what is wrong with a kernel, says who and where, and finds nothing wrong with a right one.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/simt/kernels/args.h"
#include "tests/simt/machine/machine.h"

#define WEFT_DECLARE(name) extern "C" void weft_##name(weft::BrokenArgs args)
WEFT_DECLARE(missing_barrier);
WEFT_DECLARE(write_after_read);
WEFT_DECLARE(two_writers);
WEFT_DECLARE(shared_out_of_bounds);
WEFT_DECLARE(global_out_of_bounds);
WEFT_DECLARE(misaligned);
WEFT_DECLARE(misaligned_matrix);
WEFT_DECLARE(read_in_flight);
WEFT_DECLARE(one_group_too_many);
WEFT_DECLARE(wait_without_barrier);
WEFT_DECLARE(copy_without_wait);
WEFT_DECLARE(barrier_for_some);
WEFT_DECLARE(two_barriers);
WEFT_DECLARE(divergent_shuffle);
WEFT_DECLARE(wrong_count);
WEFT_DECLARE(nobody_writes);
WEFT_DECLARE(unreleased);
WEFT_DECLARE(order_of_arrival);
WEFT_DECLARE(uninitialised);
WEFT_DECLARE(fences);
WEFT_DECLARE(named_barriers);
WEFT_DECLARE(warp_order);
WEFT_DECLARE(flag);

namespace weft::simt {
namespace {

class SimtFaults : public testing::Test {
 protected:
  SimtFaults() { std::iota(x_.begin(), x_.end(), 1.f); }

  void run(void (*kernel)(BrokenArgs), int ctas = 1) {
    run_in_all_orders(memory_, {.ctas = ctas, .threads = 64, .shared_bytes = 256}, [&] {
      kernel({x_.data(), y_.data(), counter_.data()});
    });
  }
  // What the machine says of the kernel has all these parts.
  void finds(void (*kernel)(BrokenArgs), std::initializer_list<const char*> parts, int ctas = 1) {
    try {
      run(kernel, ctas);
      FAIL() << "nothing was found";
    } catch (const Fault& fault) {
      for (const char* part : parts) EXPECT_NE(std::string(fault.what()).find(part), std::string::npos) << fault.what();
    }
  }

  Memory memory_;
  std::span<float> x_ = memory_.make<float>("x", 64), y_ = memory_.make<float>("y", 64);
  std::span<unsigned> counter_ = memory_.make("counter", std::vector<unsigned>{0});
};

TEST_F(SimtFaults, MissingBarrier) {
  finds(weft_missing_barrier,
        {"thread 32 at tests/simt/broken/missing_barrier:2 writes 4 bytes at byte 128 of cta 0's 256 bytes of shared "
         "memory",
         "thread 31 read it (tests/simt/broken/missing_barrier:3), and no barrier orders the two"});
}
TEST_F(SimtFaults, WriteOfWhatAnotherStillReads) {
  finds(weft_write_after_read, {"thread 31 at tests/simt/broken/write_after_read:4 reads 4 bytes at byte 252",
                                "thread 63 wrote it (tests/simt/broken/write_after_read:5)"});
}
TEST_F(SimtFaults, TwoWritersOfOneWord) {
  finds(weft_two_writers,
        {"thread 32 at", "two_writers:2 writes 4 bytes at byte 0 of the 256 bytes of 'y'", "thread 0 wrote it"});
}
TEST_F(SimtFaults, SharedMemoryOutOfBounds) {
  finds(weft_shared_out_of_bounds,
        {"thread 63 at",
         "shared_out_of_bounds:1 writes 4 bytes at byte 256 of cta 0's 256 bytes of shared memory: out of"});
}
TEST_F(SimtFaults, GlobalMemoryOutOfBounds) {
  finds(weft_global_out_of_bounds,
        {"thread 63 at", "global_out_of_bounds:1 reads 4 bytes at byte 256 of the 256 bytes of 'x': out of bounds"});
}
TEST_F(SimtFaults, MisalignedLoad) {
  finds(weft_misaligned,
        {"thread 0 at", "misaligned:2 reads 16 bytes at byte 4 of the 256 bytes of 'x'", "not aligned to 16 bytes"});
}
TEST_F(SimtFaults, MisalignedRowOfAMatrix) {
  finds(weft_misaligned_matrix,
        {"thread 1 at", "misaligned_matrix:3 loads a matrix's row from 16 bytes at byte 8", "not aligned to 16 bytes"});
}
TEST_F(SimtFaults, ReadOfACopyInFlight) {
  finds(weft_read_in_flight, {"tests/simt/broken/read_in_flight:5 reads 4 bytes", "a cp.async of thread 15",
                              "(tests/simt/broken/read_in_flight:2) is still in flight there"});
}
TEST_F(SimtFaults, WaitForOneGroupTooFew) {
  finds(weft_one_group_too_many, {"thread 63 at", "one_group_too_many:8 reads 4 bytes at byte 252",
                                  "one_group_too_many:3) is still in flight there"});
}
TEST_F(SimtFaults, WaitForACopyWithoutABarrierBehindIt) {
  finds(weft_wait_without_barrier, {"thread 1 at", "wait_without_barrier:5 reads 4 bytes at byte 4",
                                    "thread 0 wrote it", "wait_without_barrier:4)"});
}
TEST_F(SimtFaults, CopyThatIsNeverWaitedFor) {
  finds(weft_copy_without_wait, {"thread 0 at", "copy_without_wait:3 ends with a cp.async in flight"});
}
TEST_F(SimtFaults, BarrierThatSomeNeverReach) {
  finds(weft_barrier_for_some,
        {"no thread can go on: 40 wait in cta_sync at", "barrier_for_some:3 (thread 0 the first)", "24 have ended"});
}
TEST_F(SimtFaults, TwoCallsOfABarrier) {
  finds(weft_two_barriers, {"thread 32 at", "two_barriers:6 comes to cta_sync while thread 0 waits in that of",
                            "two_barriers:3: divergent barrier"});
}
TEST_F(SimtFaults, ShuffleThatHalfOfTheWarpCalls) {
  finds(weft_divergent_shuffle, {"thread 1 at", "divergent_shuffle:4 comes to shuffle_xor while thread 0 of its warp",
                                 "divergent_shuffle:3: divergent warp"});
}
TEST_F(SimtFaults, BarrierOfMoreThreadsThanCome) {
  finds(weft_wrong_count, {"no thread can go on: 32 wait in named_sync at", "wrong_count:2", "32 have ended"});
}
TEST_F(SimtFaults, WordThatNobodyWrites) { finds(weft_nobody_writes, {"wait for a word that nobody writes"}); }
TEST_F(SimtFaults, AtomicThatReleasesNothing) {
  finds(
      weft_unreleased,
      {"cta 1 thread 0 at", "unreleased:5 reads 4 bytes at byte 0 of the 256 bytes of 'y'", "cta 0 thread 0 wrote it"},
      2);
}
TEST_F(SimtFaults, ResultThatDependsOnTheOrderOfThreads) {
  finds(weft_order_of_arrival, {"of 'y' depends on the order of threads: going down gives another than going up"});
}
TEST_F(SimtFaults, SharedMemoryThatNobodyWroteIsNan) {
  run(weft_uninitialised);
  EXPECT_TRUE(std::isnan(y_[0]));
  EXPECT_EQ(y_[1], 63.f);
}

TEST_F(SimtFaults, FencesAroundARelaxedAtomicAreRight) {
  run(weft_fences, 2);
  EXPECT_EQ(y_[2], 3.f);
}
TEST_F(SimtFaults, NamedBarriersBetweenWarpsAreRight) {
  run(weft_named_barriers);
  EXPECT_EQ(y_[32], 32.f + 3);
}
TEST_F(SimtFaults, WarpBarrierWithinAWarpIsRight) {
  run(weft_warp_order);
  EXPECT_EQ(y_[0], 32.f);
}
TEST_F(SimtFaults, FlagThatIsReleasedAndAcquiredIsRight) {
  run(weft_flag);
  EXPECT_EQ(y_[1], 6.f);
}

}  // namespace
}  // namespace weft::simt
