// The machine finds what is wrong with cp.async that count at mbarriers, and nothing wrong with right ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/simt/kernels/args.h"
#include "tests/simt/machine/machine.h"

#define WEFT_LANES(name) extern "C" void weft_##name(weft::RingArgs args)
WEFT_LANES(lanes_read_without_wait);
WEFT_LANES(lanes_told_too_early);
WEFT_LANES(lanes_told_by_the_last);
WEFT_LANES(lanes_never_told);
WEFT_LANES(lanes_reuse_too_early);
WEFT_LANES(bulk_copy_onto_lanes);
WEFT_LANES(lanes_in_flight);
WEFT_LANES(lanes_source_written);
WEFT_LANES(right_lanes);
WEFT_LANES(lanes_by_turns);

namespace weft::simt {
namespace {

class SimtLanes : public testing::Test {
 protected:
  SimtLanes() { std::iota(x_.begin(), x_.end(), 1u); }

  using Kernel = void (*)(RingArgs);
  static constexpr Launch kLaunch = {.threads = 64, .shared_bytes = 288};

  void run(Kernel kernel) {
    run_in_all_orders(memory_, kLaunch, [&] { kernel({x_.data(), y_.data(), nullptr}); });
  }
  // What the machine says when this order goes first.
  std::string found(Kernel kernel, Order order) {
    Launch launch = kLaunch;
    launch.order = order;
    try {
      simt::run(memory_, launch, [&] { kernel({x_.data(), y_.data(), nullptr}); });
    } catch (const Fault& fault) {
      return fault.what();
    }
    return "nothing";
  }
  // What it says has all these parts, whoever goes first.
  void finds(Kernel kernel, std::initializer_list<const char*> parts) {
    for (const Order order : {Order::up, Order::down, Order::random}) {
      const std::string what = found(kernel, order);
      for (const char* part : parts) EXPECT_NE(what.find(part), std::string::npos) << what;
    }
  }

  Memory memory_;
  std::span<unsigned> x_ = memory_.make<unsigned>("x", 256), y_ = memory_.make<unsigned>("y", 256);
};

TEST_F(SimtLanes, ReadOfCopiesThatNobodyHasWaitedFor) {
  finds(weft_lanes_read_without_wait,
        {"tests/simt/broken/lanes_read_without_wait:5 reads 4 bytes at byte ", "a cp.async of thread ",
         "is still in flight there; wait for phase 0 of the mbarrier at byte 256"});
}
// A lane arrives while others have yet to say that the phase is to wait for their copies: the one that goes first, and
// the one that goes last.
TEST_F(SimtLanes, ArrivalThatNoBarrierPutsBehindTheLanes) {
  const std::string first = found(weft_lanes_told_too_early, Order::up);
  EXPECT_NE(first.find("lanes_told_too_early:5 arrives behind its cp.async at the mbarrier at byte 256: all 1 arrivals "
                       "of phase 0 have come, the last of thread 0 (tests/simt/broken/lanes_told_too_early:6)"),
            std::string::npos)
      << first;
  const std::string last = found(weft_lanes_told_by_the_last, Order::up);
  EXPECT_NE(last.find("thread 31 at tests/simt/broken/lanes_told_by_the_last:6 arrives at the mbarrier at byte 256: "
                      "phase 0 may be over before thread 0 arrives behind its cp.async "
                      "(tests/simt/broken/lanes_told_by_the_last:5), as no barrier orders that before an arrival"),
            std::string::npos)
      << last;
}
TEST_F(SimtLanes, CopiesThatTheirPhaseDoesNotWaitFor) {
  finds(weft_lanes_never_told, {"tests/simt/broken/lanes_never_told:", "reads 4 bytes at byte ",
                                "a cp.async of thread ", "is still in flight there; wait for it, then for a barrier"});
}
TEST_F(SimtLanes, EntryThatIsFilledBeforeItIsEmpty) {
  finds(weft_lanes_reuse_too_early, {"lanes_reuse_too_early:4 writes 16 bytes at byte ", "read it (",
                                     "lanes_reuse_too_early:7), and no barrier orders the two"});
}
TEST_F(SimtLanes, BulkCopyOntoThemWithoutAFence) {
  finds(weft_bulk_copy_onto_lanes,
        {"thread 0 at ", "bulk_copy_onto_lanes:6 copies to 128 bytes at byte 0", "a cp.async wrote it (",
         "through the generic proxy, and no fence_async_shared() of this CTA lies between the two"});
}
TEST_F(SimtLanes, CopiesThatAreInFlightAsTheirCtaEnds) {
  finds(weft_lanes_in_flight, {"lanes_in_flight:3 starts a cp.async that is in flight when its CTA ends: nobody waits "
                               "for phase 0 of the mbarrier at byte 256"});
}
TEST_F(SimtLanes, SourceThatIsWrittenWhileTheyReadIt) {
  finds(weft_lanes_source_written,
        {"thread 33 at tests/simt/broken/lanes_source_written:6 writes ", " of 'y' while a cp.async of thread ",
         "reads it: it has not waited for phase 0 of the mbarrier at byte 256"});
}

TEST_F(SimtLanes, RingOverManyPhasesIsRight) {
  for (const Kernel kernel : {weft_right_lanes, weft_lanes_by_turns}) {
    std::ranges::fill(y_, 0u);
    run(kernel);
    for (size_t i = 0; i < 8; ++i)
      for (size_t lane = 0; lane < 32; ++lane) EXPECT_EQ(y_[32 * i + lane], x_[32 * i + 31 - lane]);
  }
}

}  // namespace
}  // namespace weft::simt
