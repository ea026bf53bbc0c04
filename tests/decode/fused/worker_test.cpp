// Parts of a worker of fused decoding in the host machine: when its copying warp goes on, and whom it waits for.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/decode/fused/worker_args.h"
#include "tests/simt/machine/machine.h"

extern "C" void weft_copies(weft::decode::fused::WorkerArgs args);
extern "C" void weft_inputs(weft::decode::fused::WorkerArgs args);

namespace weft::decode::fused {
namespace {

class WorkerParts : public ::testing::Test {
 protected:
  // Of two workers, the second of which has a tile.
  WorkerParts() {
    args_.model.matrices[0] = {.borders = ints({0, 0, 1}), .worker_slot = ints({0, 0}), .first_slot = ints({0, 1})};
    args_.model.offsets = memory_.make("offsets", std::vector<long long>(4)).data();
    args_.model.kinds[0].worker_indptr = ints({0, 1, 2});
    args_.model.kinds[1].worker_indptr = ints({0, 0, 0});
    args_.model.cells = memory_.make("cells", std::vector<unsigned long long>(64)).data();
    args_.model.page_size = args_.model.rows = 1;
    args_.model.limit_ns = 1000;
    args_.too_early = bools(kCopiedPhases), args_.in_time = bools(kCopiedPhases), args_.has_input = bools(2);
  }
  void run(void (*kernel)(WorkerArgs), int ctas) {
    simt::run_in_all_orders(memory_, {.ctas = ctas, .threads = 32, .shared_bytes = 16 << 10}, [&] { kernel(args_); });
  }
  WorkerArgs args_;

 private:
  const int* ints(const std::vector<int>& values) { return memory_.make("ints", values).data(); }
  bool* bools(size_t count) {
    const std::span<bool> all = memory_.make<bool>("bools", count);
    std::ranges::fill(all, false);
    return all.data();
  }
  simt::Memory memory_;
};

// Where a study holds it back, and for the bytes that it has in flight: it counts phases as those that multiply do.
TEST_F(WorkerParts, TheCopyingWarpWaitsForThePhaseThatItCopies) {
  args_.model.holds_back = true;
  run(weft_copies, 1);
  for (int phase = 0; phase < kCopiedPhases; ++phase) {
    EXPECT_FALSE(args_.too_early[phase]) << phase;
    EXPECT_EQ(args_.in_time[phase], copies_in(phase)) << phase;
  }
}

// Nobody waits until a worker without tiles has read what it would multiply: that may be written anew before.
TEST_F(WorkerParts, WorkersWithoutTilesDoNotWaitForAnInput) {
  run(weft_inputs, 2);
  EXPECT_TRUE(args_.has_input[0]);
  EXPECT_FALSE(args_.has_input[1]);
}

}  // namespace
}  // namespace weft::decode::fused
