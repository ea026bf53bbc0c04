// Clusters exchange what they should, and the machine finds what is wrong with others.
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/simt/kernels/args.h"
#include "tests/simt/machine/machine.h"

extern "C" void weft_cluster(weft::PersistentArgs args);
#define WEFT_CLUSTER(name) extern "C" void weft_##name(weft::RingArgs args)
WEFT_CLUSTER(cluster_not_begun);
WEFT_CLUSTER(cluster_without_barrier);
WEFT_CLUSTER(cluster_ends_early);
WEFT_CLUSTER(cluster_arrives_twice);
WEFT_CLUSTER(cluster_waits_alone);
WEFT_CLUSTER(cluster_of_one);
WEFT_CLUSTER(cluster_rank_beyond);
WEFT_CLUSTER(copy_to_another_cta);

namespace weft::simt {
namespace {

TEST(SimtCluster, CtasReadAndWriteEachOthersMemory) {
  const int ctas = 6, cluster = 3;
  std::mt19937 random(20261127);
  std::vector<unsigned> values(256 * ctas);
  for (unsigned& value : values) value = static_cast<unsigned>(random());
  Memory memory;
  const auto x = memory.make("x", values), y = memory.make<unsigned>("y", values.size());
  for (const int resident : {6, 4}) {  // of the latter a cluster at a time
    run_in_all_orders(
        memory, {.ctas = ctas, .threads = 256, .shared_bytes = 2048, .cluster = cluster, .resident_ctas = resident},
        [&] {
          weft_cluster({x.data(), y.data(), nullptr, nullptr});
        });
    const auto sum = [&](int first, int rank, int i) {
      unsigned made = 0;
      for (int r = 0; r < cluster; ++r)
        made = made * 31 + x[static_cast<size_t>(256 * (first + (rank + r) % cluster) + 255 - i)];
      return made;
    };
    for (int cta = 0; cta < ctas; ++cta)
      for (int i = 0; i < 256; ++i) {
        const int first = cta / cluster * cluster, rank = cta % cluster;
        ASSERT_EQ(y[static_cast<size_t>(256 * cta + i)],
                  sum(first, rank, i) + sum(first, (rank + cluster - 1) % cluster, i))
            << cta << ", " << i;
      }
  }
}

class SimtClusterFaults : public testing::Test {
 protected:
  // What the machine says has all these parts, whoever goes first.
  void finds(void (*kernel)(RingArgs), std::initializer_list<const char*> parts) {
    for (const Order order : {Order::up, Order::down, Order::random}) {
      const std::string before = memory_.content();
      try {
        run(memory_, {.ctas = 2, .threads = 32, .shared_bytes = 136, .cluster = 2, .order = order}, [&] {
          kernel({x_.data(), y_.data(), nullptr});
        });
        ADD_FAILURE() << "nothing was found";
      } catch (const Fault& fault) {
        for (const char* part : parts)
          EXPECT_NE(std::string(fault.what()).find(part), std::string::npos) << fault.what();
      }
      memory_.restore(before);
    }
  }

  Memory memory_;
  std::span<unsigned> x_ = memory_.make<unsigned>("x", 64), y_ = memory_.make<unsigned>("y", 64);
};

TEST_F(SimtClusterFaults, MemoryOfACtaThatMayNotHaveBegun) {
  finds(weft_cluster_not_begun, {"cluster_not_begun:3 reads 4 bytes at byte ",
                                 "that CTA may not have begun: a cluster_sync() must lie before"});
}
TEST_F(SimtClusterFaults, MemoryThatNoBarrierOfTheClusterOrders) {
  finds(weft_cluster_without_barrier, {"tests/simt/broken/cluster_without_barrier:3",
                                       "tests/simt/broken/cluster_without_barrier:5", "no barrier orders the two"});
}
TEST_F(SimtClusterFaults, MemoryOfACtaThatMayHaveEnded) {
  finds(weft_cluster_ends_early,
        {"cluster_ends_early:4 ", " shared memory", "end", "a cluster_sync() behind the last access keeps it"});
}
TEST_F(SimtClusterFaults, ArrivalsAndWaitsThatDoNotTakeTurns) {
  finds(weft_cluster_arrives_twice,
        {"cluster_arrives_twice:3 arrives at its cluster's barrier again, and has not waited since it did (",
         "cluster_arrives_twice:2)"});
  finds(weft_cluster_waits_alone, {"cluster_waits_alone:1 waits at its cluster's barrier, and has not arrived"});
}
TEST_F(SimtClusterFaults, RankThatTheClusterHasNot) {
  finds(weft_cluster_rank_beyond,
        {"cluster_rank_beyond:3 asks for shared memory of rank 2 of its cluster; allowed are 0 to 1"});
}
TEST_F(SimtClusterFaults, CopyToAnotherCta) {
  finds(weft_copy_to_another_cta,
        {"copy_to_another_cta:7 copies to 128 bytes at byte 0 of cta ", "not shared memory of its own CTA"});
}
TEST_F(SimtClusterFaults, ClusterOfWhichACtaNeverArrives) {
  finds(weft_cluster_of_one,
        {"no thread can go on: ", "32 wait in cluster_wait at tests/simt/broken/cluster_of_one:6 (cta 0 thread ",
         "the first) for 32 threads of its cluster to arrive", "32 wait in mbarrier_wait at "});
}
TEST_F(SimtClusterFaults, ClustersThatDoNotDivideTheLaunch) {
  EXPECT_THROW(run(memory_, {.ctas = 3, .threads = 32, .cluster = 2}, [] {}), std::invalid_argument);
}

}  // namespace
}  // namespace weft::simt
