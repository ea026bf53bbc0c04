// The machine finds what is wrong with products of warpgroups, and nothing wrong with right ones.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/simt/kernels/args.h"
#include "tests/simt/machine/machine.h"

#define WEFT_WARPGROUP(name) extern "C" void weft_##name(weft::WarpgroupArgs args)
WEFT_WARPGROUP(product_read_early);
WEFT_WARPGROUP(product_never_committed);
WEFT_WARPGROUP(one_product_too_many);
WEFT_WARPGROUP(accumulators_not_named);
WEFT_WARPGROUP(scaled_under_way);
WEFT_WARPGROUP(product_without_fence);
WEFT_WARPGROUP(first_without_fence);
WEFT_WARPGROUP(a_without_fence);
WEFT_WARPGROUP(a_changed_under_way);
WEFT_WARPGROUP(tile_without_proxy_fence);
WEFT_WARPGROUP(tile_without_barrier);
WEFT_WARPGROUP(tile_written_early);
WEFT_WARPGROUP(tile_written_before_others_waited);
WEFT_WARPGROUP(beyond_the_tile);
WEFT_WARPGROUP(beyond_the_row);
WEFT_WARPGROUP(tile_askew);
WEFT_WARPGROUP(row_askew);
WEFT_WARPGROUP(three_warps);
WEFT_WARPGROUP(fifth_warp);
WEFT_WARPGROUP(two_products);
WEFT_WARPGROUP(descriptors_differ);
WEFT_WARPGROUP(two_shapes);
WEFT_WARPGROUP(product_nobody_waits_for);
WEFT_WARPGROUP(right_products);
WEFT_WARPGROUP(tile_filled_again);

namespace weft::simt {
namespace {

class SimtProducts : public testing::Test {
 protected:
  SimtProducts() { std::iota(x_.begin(), x_.end(), 1.f); }

  using Kernel = void (*)(WarpgroupArgs);
  static Launch of_threads(int n) { return {.threads = n, .shared_bytes = 2 * 8192 + 16}; }

  void run(Kernel kernel, int threads) {
    run_in_all_orders(memory_, of_threads(threads), [&] { kernel({x_.data(), y_.data()}); });
  }
  // What the machine says has all these parts, whoever goes first.
  void finds(Kernel kernel, std::initializer_list<const char*> parts, int threads = 128) {
    for (const Order order : {Order::up, Order::down, Order::random}) {
      const std::string before = memory_.content();
      Launch launch = of_threads(threads);
      launch.order = order;
      try {
        simt::run(memory_, launch, [&] { kernel({x_.data(), y_.data()}); });
        ADD_FAILURE() << "nothing was found";
      } catch (const Fault& fault) {
        for (const char* part : parts)
          EXPECT_NE(std::string(fault.what()).find(part), std::string::npos) << fault.what();
      }
      memory_.restore(before);
    }
  }

  Memory memory_;
  std::span<float> x_ = memory_.make<float>("x", 64), y_ = memory_.make<float>("y", 256);
};

TEST_F(SimtProducts, AccumulatorsThatAreReadBeforeTheWait) {
  finds(weft_product_read_early, {"thread ", "product_read_early:7", "reads accumulators of a product (",
                                  "product_read_early:5", "that is under way: wait for its group"});
}
TEST_F(SimtProducts, ProductThatIsInNoGroup) {
  finds(weft_product_never_committed, {"product_never_committed:7", "reads accumulators of a product (",
                                       "it is in no group yet; wgmma_commit(), then wait"});
}
TEST_F(SimtProducts, WaitForOneGroupTooFew) {
  finds(weft_one_product_too_many, {"one_product_too_many:11", "reads accumulators of a product (",
                                    "one_product_too_many:7", "that is under way: wait for its group"});
}
TEST_F(SimtProducts, WaitThatDoesNotNameTheAccumulators) {
  finds(weft_accumulators_not_named,
        {"accumulators_not_named:8", "reads accumulators of a product (",
         "wgmma_wait (tests/simt/broken/accumulators_not_named:7) waits for it, and does not name them"});
}
TEST_F(SimtProducts, AccumulatorsThatAreWrittenBeforeTheWait) {
  finds(weft_scaled_under_way, {"thread ", "scaled_under_way:6 writes accumulators of a product (",
                                "that is under way: it is in no group yet"});
}
TEST_F(SimtProducts, RegistersThatAreWrittenWithoutAFenceBehindThem) {
  finds(weft_product_without_fence, {"multiplies with accumulators that this thread has touched (",
                                     "product_without_fence:5) since its last wgmma_fence()"});
  finds(weft_a_without_fence, {"multiplies with registers of A that this thread has touched (",
                               "a_without_fence:6) since its last wgmma_fence()"});
  finds(weft_first_without_fence, {"multiplies, and no wgmma_fence() lies before its first product"});
}
TEST_F(SimtProducts, RegistersOfAThatAreWrittenBeforeTheWait) {
  finds(weft_a_changed_under_way,
        {"a_changed_under_way:6 writes registers of A of a product (", "that is under way: wait for its group"});
}
TEST_F(SimtProducts, StoresBeforeAProductWithoutAFenceOfTheAsyncProxy) {
  finds(weft_tile_without_proxy_fence, {"multiplies A of 16 bytes at byte ", "wrote it (", "tile_without_proxy_fence:3",
                                        "through the generic proxy, and no fence_async_shared() lies between the two"});
}
TEST_F(SimtProducts, StoresBeforeAProductWithoutABarrier) {
  finds(weft_tile_without_barrier,
        {"multiplies A of 16 bytes at byte ", "tile_without_barrier:2", "and no barrier orders the two"});
}
TEST_F(SimtProducts, TileThatIsWrittenWhileAProductReadsIt) {
  finds(weft_tile_written_early,
        {"tile_written_early:5 writes 2 bytes at byte ", "a product read it (", "tile_written_early:10",
         "and no barrier orders this behind the wait for that"},
        160);
  finds(weft_tile_written_before_others_waited,
        {"tile_written_before_others_waited:8 waits for a product (", "that reads B of 16 bytes at byte ",
         "wrote it (tests/simt/broken/tile_written_before_others_waited:7) in the meantime"});
}
TEST_F(SimtProducts, DescriptorOfOtherBytesThanTheTiles) {
  finds(weft_beyond_the_tile,
        {"beyond_the_tile:5 multiplies B, whose descriptor names 16 bytes at byte 16384 of cta 0's",
         "outside of its tile, 8192 bytes at byte 8192"});
  finds(weft_beyond_the_row, {"multiplies A, whose descriptor names 16 bytes at byte 8192 of cta 0's",
                              "outside of its tile, 8192 bytes at byte 0"});
}
TEST_F(SimtProducts, DescriptorWhosePatternBeginsElsewhere) {
  finds(weft_tile_askew, {"tile_askew:6 multiplies A, a tile at 8192 bytes at byte 512",
                          "tiles with panels of 128 bytes begin at multiples of 1024"});
  finds(weft_row_askew,
        {"row_askew:5 multiplies B from byte 512 of its tile on, which is no multiple of eight rows of 128 bytes and"});
}
TEST_F(SimtProducts, PartOfAWarpgroup) {
  finds(weft_three_warps,
        {"no thread can go on: 96 wait in a product of its warpgroup at ", "three_warps:6", "32 have ended"});
  finds(weft_fifth_warp, {"multiplies: its warpgroup has 1 of 4 warps"}, 160);
}
TEST_F(SimtProducts, WarpgroupWhoseWarpsMultiplyOtherThings) {
  finds(weft_two_products, {"comes to a product while thread ", "of its warpgroup waits in one at ",
                            "two_products:", "divergent warpgroup"});
  finds(weft_descriptors_differ, {"multiplies what thread ", "of its warpgroup does not: their descriptors"});
}
TEST_F(SimtProducts, AccumulatorsInTwoShapes) {
  finds(weft_two_shapes,
        {"multiplies with accumulators that another product (", "two_shapes:5", "has in another shape; wait for it"});
}
TEST_F(SimtProducts, ProductThatIsNeverWaitedFor) {
  finds(weft_product_nobody_waits_for,
        {"product_nobody_waits_for:5", "ends with a product under way that it never waits for"});
}

TEST_F(SimtProducts, GroupsOfProductsAreRight) {
  run(weft_right_products, 128);
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(y_[i], 352.f) << i;
}
TEST_F(SimtProducts, TileThatIsFilledAgainOnceItWasReadIsRight) {
  run(weft_tile_filled_again, 160);
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(y_[i], 48.f) << i;
}

}  // namespace
}  // namespace weft::simt
