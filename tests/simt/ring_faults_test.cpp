// The machine finds what is wrong with copies in flight, mbarriers, counters between CTAs and registers that move, and
// nothing wrong with right ones.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/simt/kernels/args.h"
#include "tests/simt/machine/machine.h"

#define WEFT_RING(name) extern "C" void weft_##name(weft::RingArgs args)
WEFT_RING(read_without_wait);
WEFT_RING(read_too_early);
WEFT_RING(same_parity);
WEFT_RING(empty_ring);
WEFT_RING(phase_gone_by);
WEFT_RING(too_many_bytes);
WEFT_RING(too_few_bytes);
WEFT_RING(no_bytes);
WEFT_RING(too_many_arrivals);
WEFT_RING(too_few_arrivals);
WEFT_RING(init_again);
WEFT_RING(no_init);
WEFT_RING(init_without_barrier);
WEFT_RING(init_without_fence);
WEFT_RING(used_after_inval);
WEFT_RING(written_over);
WEFT_RING(reused_too_early);
WEFT_RING(emptied_by_one_lane);
WEFT_RING(one_warp_of_four);
WEFT_RING(copy_onto_stores);
WEFT_RING(store_without_fence);
WEFT_RING(fence_of_another_cta);
WEFT_RING(source_written);
WEFT_RING(stored_from_too_late);
WEFT_RING(store_never_waited_for);
WEFT_RING(read_of_a_store);
WEFT_RING(copy_of_20_bytes);
WEFT_RING(misaligned_copy);
WEFT_RING(copy_past_the_end);
WEFT_RING(copy_nobody_waits_for);
WEFT_RING(acquired_by_nobody);
WEFT_RING(written_before_all_have_read);
WEFT_RING(grid_of_some);
WEFT_RING(registers_of_some);
WEFT_RING(more_registers_than_there_are);
WEFT_RING(fewer_registers_by_increase);
WEFT_RING(registers_of_one_warp);
WEFT_RING(registers_twice);
WEFT_RING(two_counts);
WEFT_RING(right_ring);
WEFT_RING(polled_ring);
WEFT_RING(right_stores);
WEFT_RING(fence_behind_the_acquire);
WEFT_RING(right_inval);
WEFT_RING(right_grid);
WEFT_RING(right_counters);
WEFT_RING(readiness_in_the_data);
WEFT_RING(gives_up);
WEFT_RING(right_registers);

namespace weft::simt {
namespace {

class SimtRing : public testing::Test {
 protected:
  SimtRing() { std::iota(x_.begin(), x_.end(), 1u); }

  using Kernel = void (*)(RingArgs);
  static constexpr Launch kOne = {.threads = 64, .shared_bytes = 320};
  static Launch of_ctas(int n) { return {.ctas = n, .threads = 64, .shared_bytes = 320}; }
  static Launch of_threads(int n) { return {.threads = n, .shared_bytes = 320}; }

  void run(Kernel kernel, const Launch& launch = kOne) {
    run_in_all_orders(memory_, launch, [&] { kernel({x_.data(), y_.data(), counter_.data()}); });
  }
  void finds_in_some_order(Kernel kernel, std::initializer_list<const char*> parts) {
    std::string found;
    for (const Order order : {Order::up, Order::down, Order::random}) {
      try {
        Launch launch = kOne;
        launch.order = order;
        simt::run(memory_, launch, [&] { kernel({x_.data(), y_.data(), counter_.data()}); });
      } catch (const Fault& fault) {
        found += std::string(fault.what()) + "\n";
      }
    }
    for (const char* part : parts) EXPECT_NE(found.find(part), std::string::npos) << found;
  }
  // What the machine says has all these parts, whoever goes first.
  void finds(Kernel kernel, std::initializer_list<const char*> parts, Launch launch = kOne) {
    for (const Order order : {Order::up, Order::down, Order::random}) {
      const std::string before = memory_.content();
      launch.order = order;
      try {
        simt::run(memory_, launch, [&] { kernel({x_.data(), y_.data(), counter_.data()}); });
        ADD_FAILURE() << "nothing was found";
      } catch (const Fault& fault) {
        for (const char* part : parts)
          EXPECT_NE(std::string(fault.what()).find(part), std::string::npos) << fault.what();
      }
      memory_.restore(before);
    }
  }

  Memory memory_;
  std::span<unsigned> x_ = memory_.make<unsigned>("x", 256), y_ = memory_.make<unsigned>("y", 256);
  std::span<unsigned> counter_ = memory_.make("counter", std::vector<unsigned>(4, 0));
};

TEST_F(SimtRing, ReadOfACopyThatNobodyHasWaitedFor) {
  finds(weft_read_without_wait,
        {"tests/simt/broken/read_without_wait:5 reads 4 bytes at byte ", "a bulk copy of thread 0 (",
         "tests/simt/broken/read_without_wait:3) is still in flight there; wait for phase 0 of the mbarrier at byte "
         "256"});
}
// Before the copy begins, or while it is under way.
TEST_F(SimtRing, ReaderWhoseWaitIsForAnEmptyRing) {
  finds(weft_read_too_early, {"tests/simt/broken/read_too_early:5", "tests/simt/broken/read_too_early:3", "cop"});
}
TEST_F(SimtRing, WaitForAPhaseThatTheThreadHasWaitedFor) {
  finds(
      weft_same_parity,
      {"tests/simt/broken/same_parity:6 waits for parity 0 of the mbarrier at byte 256 again: it has waited for phase "
       "0, and the wait for phase 1, which has the other parity, would pass at once"});
}
TEST_F(SimtRing, WaitForAnEmptyRingThatNeverEnds) {
  finds(
      weft_empty_ring,
      {"no thread can go on: 1 wait in mbarrier_wait at tests/simt/broken/empty_ring:4 (thread 0 the first) for phase "
       "0 of the mbarrier at byte 272: 1 of 1 arrivals are missing, 32 wait in mbarrier_wait at ",
       "for phase 0 of the mbarrier at byte 256: 1 of 1 arrivals are missing, 31 have ended"});
}
TEST_F(SimtRing, WaitForAPhaseThatMayHaveGoneBy) {
  finds(
      weft_phase_gone_by,
      {"thread 1 at tests/simt/broken/phase_gone_by:12 waits for parity 0 of the mbarrier at byte 256, as for phase 0: "
       "that and phase 1 are over, and the wait would be for a later one"});
}
TEST_F(SimtRing, BytesThatNoCopyBrings) {
  finds(weft_too_many_bytes,
        {"no thread can go on: 32 wait in mbarrier_wait at", "for phase 0 of the mbarrier at byte 256",
         "128 bytes are expected (tests/simt/broken/too_many_bytes:4) that no copy brings"});
}
TEST_F(SimtRing, BytesThatNobodyExpects) {
  finds(weft_too_few_bytes, {"thread 0 at",
                             "too_few_bytes:5 completes a copy on the mbarrier at byte 256: phase 0 expects 112 bytes "
                             "(tests/simt/broken/too_few_bytes:4), and copies bring 128"});
  finds(weft_no_bytes,
        {"thread 0 at tests/simt/broken/no_bytes:5 arrives at the mbarrier at byte 256: phase 0 expects 0 "
         "bytes, and copies bring 128, the last of thread 0 (",
         "tests/simt/broken/no_bytes:4)"});
}
TEST_F(SimtRing, MoreArrivalsThanAPhaseHas) {
  finds(weft_too_many_arrivals,
        {"too_many_arrivals:5 arrives at the mbarrier at byte 256: all 1 arrivals of phase 0 have "
         "come, the last of thread 0 (tests/simt/broken/too_many_arrivals:4)"});
}
TEST_F(SimtRing, FewerArrivalsThanAPhaseHas) {
  finds(weft_too_few_arrivals, {"no thread can go on: 64 wait in mbarrier_wait at tests/simt/broken/too_few_arrivals:5",
                                "1 of 64 arrivals are missing, 0 have ended"});
}
TEST_F(SimtRing, MbarrierThatIsInitialisedTwice) {
  finds(weft_init_again, {"init_again:3 initialises the mbarrier at byte 264 again, which thread 0 initialised (",
                          "init_again:2); invalidate it first"});
}
TEST_F(SimtRing, MbarrierThatIsNone) {
  finds(weft_no_init, {"no_init:3 arrives at 8 bytes at byte 312", ": no mbarrier is initialised there"});
  finds(weft_used_after_inval,
        {"thread 32 at", "used_after_inval:5 arrives at 8 bytes at byte 256", ": no mbarrier is initialised there"});
}
TEST_F(SimtRing, MbarrierThatOthersUseWithoutABarrier) {
  finds_in_some_order(weft_init_without_barrier,
                      {"thread 32 at",
                       "init_without_barrier:4 arrives at the mbarrier at byte 256: thread 0 initialises "
                       "it (tests/simt/broken/init_without_barrier:2), and no barrier orders the two"});
}
TEST_F(SimtRing, MbarrierWithoutAFenceBeforeItsFirstCopy) {
  finds(weft_init_without_fence,
        {"init_without_fence:5 completes a copy on the mbarrier at byte 256: thread 0 initialises it "
         "(tests/simt/broken/init_without_fence:2), and no fence_mbarrier_init() lies between the two"});
}
TEST_F(SimtRing, StoreOverAnMbarrier) {
  finds(weft_written_over, {"thread 32 at tests/simt/broken/written_over:3 writes 4 bytes at byte 256",
                            "an mbarrier lies there, which thread 0 initialised ("});
}
TEST_F(SimtRing, EntryThatIsFilledBeforeItIsEmpty) {
  finds(weft_reused_too_early,
        {"thread 0 at", "reused_too_early:5 copies to 128 bytes at byte 0", "thread 63 read it (",
         "reused_too_early:7), and no barrier orders the two: its place is used again too early"});
}
TEST_F(SimtRing, EntryThatOneLaneEmptiesWhileOthersRead) {
  finds(weft_emptied_by_one_lane, {"thread 0 at", "emptied_by_one_lane:4 copies to 128 bytes at byte 0",
                                   "emptied_by_one_lane:8)", "its place is used again too early"});
}
TEST_F(SimtRing, EntryThatOneOfManyWarpsStillReads) {
  finds(weft_one_warp_of_four,
        {"thread 0 at", "one_warp_of_four:4 copies to 128 bytes at byte 0", "one_warp_of_four:7)",
         "used again too early"},
        of_threads(160));
}
TEST_F(SimtRing, StoresBeforeACopyWithoutAFence) {
  finds(weft_copy_onto_stores, {"copy_onto_stores:5 copies to 128 bytes at byte 0",
                                "wrote it (tests/simt/broken/copy_onto_stores:3) through the "
                                "generic proxy, and no fence_async_shared() of this CTA"});
  finds(weft_store_without_fence,
        {"store_without_fence:4 stores from 128 bytes at byte 0",
         "wrote it (tests/simt/broken/store_without_fence:2) through the generic proxy, and no "
         "fence_async_shared() of this CTA lies between the two"});
}
TEST_F(SimtRing, FenceInAnotherCtaThanTheCopy) {
  finds(weft_fence_of_another_cta,
        {"cta 1 thread 0 at tests/simt/broken/fence_of_another_cta:12 copies from 128 bytes at byte 0 of the 1024 "
         "bytes of "
         "'y': cta 0 thread 0 wrote it (tests/simt/broken/fence_of_another_cta:5) through the generic proxy, and no "
         "fence_async_global() of this CTA lies between the two"},
        of_ctas(2));
}
TEST_F(SimtRing, SourceThatIsWrittenWhileACopyReadsIt) {
  finds(weft_source_written,
        {"thread 33 at tests/simt/broken/source_written:8 writes ",
         "of 'y' while a bulk copy of thread 0 "
         "(tests/simt/broken/source_written:5) reads it: it has not waited for phase 0 of the mbarrier at byte 256"});
}
TEST_F(SimtRing, SourceOfAStoreThatIsWrittenBeforeItIsRead) {
  finds(weft_stored_from_too_late, {"thread 0 at", "stored_from_too_late:5", "stored_from_too_late:7)"});
}
TEST_F(SimtRing, StoreWhoseSourceEndsWithItsCta) {
  finds(weft_store_never_waited_for,
        {"thread 0 at tests/simt/broken/store_never_waited_for:5 ends with a bulk store in "
         "flight whose source it never waits for"});
}
TEST_F(SimtRing, ReadOfAStoreInFlight) {
  finds(weft_read_of_a_store, {"read_of_a_store:9 reads 4 bytes at byte ",
                               "of the 1024 bytes of 'y': a bulk store of "
                               "thread 0 (tests/simt/broken/read_of_a_store:5) is still in flight there, until that"});
}
TEST_F(SimtRing, CopiesOfBytesThatTheCardDoesNotTake) {
  finds(weft_copy_of_20_bytes, {"copy_of_20_bytes:5 copies 20 bytes by bulk_copy; allowed are multiples of 16"});
  finds(weft_misaligned_copy, {"misaligned_copy:5 copies from 16 bytes at byte 8 of", "not aligned to 16 bytes"});
  finds(weft_copy_past_the_end,
        {"copy_past_the_end:5 copies from 128 bytes at byte 960 of the 1024 bytes of 'x': out of"});
}
TEST_F(SimtRing, CopyThatIsInFlightAsItsCtaEnds) {
  finds(weft_copy_nobody_waits_for,
        {"thread 0 at",
         "copy_nobody_waits_for:3 starts a bulk copy that is in flight when its CTA ends: nobody waits for "
         "phase 0 of the mbarrier at byte 256"});
}
TEST_F(SimtRing, ReleaseThatNobodyAcquires) {
  finds(weft_acquired_by_nobody,
        {"cta 1 thread 0 at tests/simt/broken/acquired_by_nobody:11 reads 4 bytes at byte 0 of the 1024 bytes of 'y': "
         "cta "
         "0 thread 0 wrote it (tests/simt/broken/acquired_by_nobody:5), and no barrier orders the two, nor a release "
         "that is acquired"},
        of_ctas(2));
}
// Loads give values as old as they may: who waits for two arrivals of three is shown just two.
TEST_F(SimtRing, CounterThatIsWaitedForOneTooFew) {
  finds(weft_written_before_all_have_read,
        {"cta 0 thread 0 at tests/simt/broken/written_before_all_have_read:10 writes 4 bytes at byte 0",
         "thread 0 read it "
         "(tests/simt/broken/written_before_all_have_read:5), and no barrier orders the two, nor a release that is "
         "acquired"},
        of_ctas(4));
}
TEST_F(SimtRing, BarrierOfAllCtasThatOneNeverReaches) {
  finds(weft_grid_of_some,
        {"the threads that are left wait for a word that nobody writes: 3 poll at tile/cuda/grid_sync.h:",
         "grid_of_some:4 (cta 0 thread 0 the first) for 4 bytes at byte 0 of the 16 bytes of 'counter', 189 wait in "
         "cta_sync at",
         "64 have ended"},
        of_ctas(4));
}
TEST_F(SimtRing, BarrierOfMoreCtasThanAreResident) {
  Launch launch = of_ctas(4);
  launch.resident_ctas = 3;
  finds(weft_right_grid,
        {"wait for a word that nobody writes: 3 poll at", "of 'counter'",
         "0 have ended; 1 CTAs have not begun, as no more than 3 are resident and none of them ends"},
        launch);
}
TEST_F(SimtRing, CooperativeLaunchOfMoreCtasThanAreResidentIsRefused) {
  Launch launch = of_ctas(4);
  launch.cooperative = true;
  launch.resident_ctas = 3;
  try {
    run(weft_right_grid, launch);
    FAIL() << "was launched";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "a cooperative launch of 4 CTAs, of which 3 are resident at once");
  }
}
TEST_F(SimtRing, RegistersThatHalfAWarpgroupGivesUp) {
  finds(weft_registers_of_some,
        {"comes to decrease_registers<", "of its warpgroup waits in decrease_registers<", "divergent warpgroup"},
        of_threads(128));
  finds(weft_registers_of_one_warp,
        {"registers_of_one_warp:2 comes to decrease_registers: its warpgroup has 1 of 4 warps"}, of_threads(160));
}
TEST_F(SimtRing, MoreRegistersThanOthersGiveUp) {
  finds(weft_more_registers_than_there_are,
        {"no thread can go on: 128 wait in increase_registers at tests/simt/broken/more_registers_than_there_are:5 "
         "(thread "
         "256 the first) for 72 registers a thread more, of which 56 are free, 256 have ended"},
        of_threads(384));
}
TEST_F(SimtRing, IncreaseToFewerRegisters) {
  finds(weft_fewer_registers_by_increase,
        {"comes to increase_registers<160> with 168 registers; allowed are as many or more"}, of_threads(384));
}
TEST_F(SimtRing, ChangesOfRegistersWithoutABarrierBetween) {
  finds(weft_registers_twice,
        {"registers_twice:3 comes to decrease_registers: no barrier lies between this and the last "
         "change of thread"},
        of_threads(128));
}
TEST_F(SimtRing, NamedBarrierWithTwoCounts) {
  finds(weft_two_counts, {"comes to barrier 1 of ", "has come to it as one of "}, of_threads(96));
}

TEST_F(SimtRing, RingOverManyPhasesIsRight) {
  run(weft_right_ring);
  for (size_t i = 0; i < 8; ++i)
    for (size_t lane = 0; lane < 32; ++lane) EXPECT_EQ(y_[32 * i + lane], x_[32 * i + 31 - lane]);
  run(weft_polled_ring);
  EXPECT_EQ(y_[255], x_[224]);
}
TEST_F(SimtRing, StoresFromOneEntryAfterAnotherAreRight) {
  run(weft_right_stores);
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(y_[i], 2 * x_[i]);
}
TEST_F(SimtRing, FenceBehindTheAcquireIsRight) {
  run(weft_fence_behind_the_acquire, of_ctas(2));
  EXPECT_EQ(y_[32], 6u);
}
TEST_F(SimtRing, MbarriersPlaceServesAnotherOnceItIsInvalid) { run(weft_right_inval); }
TEST_F(SimtRing, BarriersOfAllCtasAreRight) {
  Launch launch = of_ctas(4);
  launch.cooperative = true;
  run(weft_right_grid, launch);
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(y_[i], x_[(i + 5 * 64) % 256] + 5);
}
TEST_F(SimtRing, CountersBetweenCtasAreRight) {
  run(weft_right_counters, of_ctas(4));
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(y_[i], 2 * x_[i] + 2);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(y_[64 + i], 2 * x_[i] + 4);
}
TEST_F(SimtRing, ValuesBesideTheirNumberAreRight) {
  run(weft_readiness_in_the_data, of_ctas(2));
  EXPECT_EQ(y_[128 + 2 * 7], x_[7] + 1);
}
TEST_F(SimtRing, WaitThatGivesUpIsRight) {
  run(weft_gives_up);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(y_[i], 2u);
  for (size_t i = 64; i < 128; ++i) EXPECT_EQ(y_[i], 1u);
}
TEST_F(SimtRing, RegistersThatWarpgroupsHandToEachOtherAreRight) {
  run(weft_right_registers, of_threads(384));
  EXPECT_EQ(y_[255], 256u);
}

}  // namespace
}  // namespace weft::simt
