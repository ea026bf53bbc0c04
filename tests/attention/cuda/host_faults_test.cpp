// Kernels of attention that are broken in one place: the host machine says what is wrong, or the numbers are.
#include <gtest/gtest.h>

#include "attention/kernel.h"
#include "host_target.h"
#include "tests/attention/kernels/problem.h"
#include "tests/simt/machine/machine.h"

namespace weft {
namespace {

using testing::Case;
using testing::host_machine;
using testing::Problem;

struct Broken {
  const char* name;
  simt::Breakage what;  // in attention/cuda/kernels
  DType type;
  const char* says;  // of the fault; empty: the output is wrong
};
const Broken kBroken[] = {
    {"KeysBeforeTheyAreThere",
     {"plain.h", "stage<true>(begin, keys);\n      ptx::cta_sync();", "stage<true>(begin, keys);"},
     DType::fp32,
     "no barrier orders the two"},
    {"ValuesOverKeys",
     {"plain.h", "multiply_keys(begin, keys, left_out);\n      ptx::cta_sync();",
      "multiply_keys(begin, keys, left_out);"},
     DType::fp32,
     "no barrier orders the two"},
    {"MaximumReadAndWritten",
     {"plain.h", "shrink = tile::shrink_of(before, maximum, tile::kLog2E);\n      ptx::warp_sync();",
      "shrink = tile::shrink_of(before, maximum, tile::kLog2E);"},
     DType::fp32,
     "no barrier orders the two"},
    {"PartialNotReleased",
     {"merge.h", "ptx::atomic_add_acq_rel(counter, 1))", "ptx::atomic_add(counter, 1))"},
     DType::fp32,
     "no barrier orders the two"},
    {"PartialNotWhole",
     {"mma.h", "joined.write();\n    }\n    ptx::cta_sync();", "joined.write();\n    }"},
     DType::bf16,
     "no barrier"},
    {"CounterLeft", {"merge.h", "if (last) *counter = 0;", ""}, DType::fp32, ""},
    {"TileReadInFlight",
     {"mma.h", "ptx::cp_async_wait<kStages - 2>();\n      Shape::publish();",
      "ptx::cp_async_wait<kStages - 1>();\n      Shape::publish();"},
     DType::bf16,
     "still in flight"},
    {"StageOverwritten",
     {"mma.h", "ptx::cta_sync();  // the tile is there, and the one before it was read\n",
      "if (tile <= 0) ptx::cta_sync();\n"},
     DType::bf16,
     "then for a barrier"},
    {"QueriesBehindTheLast", {"mma/rows.h", "(r < n ? r : n - 1)", "r + 100000"}, DType::bf16, "out of bounds"},
    {"WarpsNotJoined", {"mma/join.h", "total += weight[w] * s.sum[w][r];", "total += s.sum[w][r];"}, DType::bf16, ""},
    {"CausalByOne", {"mma/logits.h", "seen.high : end) - column", "seen.high : end) - column + 1"}, DType::bf16, ""},
    {"MergeWithoutWeights",
     {"merge.h", "weight = exp_fast(of_lane.value - base + of_lane.rest);", ";"},
     DType::fp32,
     ""},
};

class BrokenKernels : public ::testing::TestWithParam<const Broken*> {};

TEST_P(BrokenKernels, AreFound) {
  const Broken& broken = *GetParam();
  Case c;
  c.q_dtype = c.kv_dtype = c.o_dtype = broken.type;
  c.group = 2;
  c.head_dim_qk = 88;  // kernels are remembered by their spec, which no other test has
  c.head_dim_vo = 16 + 8 * static_cast<int>(&broken - kBroken);
  c.mask = Mask::causal;
  c.lengths = {{1, 300}, {5, 140}};
  Problem problem(c);
  problem.reference();
  simt::break_kernels({"attention/cuda/kernels/" + broken.what.file, broken.what.from, broken.what.to});
  const AttentionKernel kernel = build_on(host_machine(), problem.spec());
  simt::break_kernels({});
  const Plan plan = kernel.plan(problem.input(4));
  ASSERT_GT(plan.num_partials(), 0);
  try {
    // Twice: what the first run leaves behind is found by the second.
    Workspace workspace(Device::cuda(), plan.workspace_bytes());
    plan.upload(workspace);
    for (int i = 0; i < 2; ++i) {
      problem.poison_outputs();
      const testing::Placed placed(host_machine(), problem.tensors());
      kernel.run(workspace, placed.tensors());
      placed.fetch();
    }
    EXPECT_STREQ(broken.says, "") << "no fault";
    EXPECT_NE(problem.compare(kernel.impl().compute), "");
  } catch (const simt::Fault& fault) {
    EXPECT_NE(std::string(fault.what()).find(broken.says), std::string::npos) << fault.what();
    EXPECT_STRNE(broken.says, "") << fault.what();
  }
}
INSTANTIATE_TEST_SUITE_P(Each, BrokenKernels, ::testing::Range(std::begin(kBroken), std::end(kBroken)),
                         [](const auto& broken) { return std::string(broken.param->name); });

}  // namespace
}  // namespace weft
