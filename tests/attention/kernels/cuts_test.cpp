// Where intervals and items end inside of tiles, and merges of more states than a warp has lanes, on every target.
#include <gtest/gtest.h>

#include "attention/cpu/leaf.h"
#include "problem.h"

namespace weft {
namespace {

using testing::Case;
using testing::Problem;
using testing::Target;

struct Cut {
  const char* name;
  Mask mask = Mask::none;
  int sinks = 0;  // first keys; 11 more end where a row stands
  std::vector<std::pair<int, int>> lengths;
  int split = 0;       // 0: items are whole units
  bool rises = false;  // later keys are e times as probable
};
const Cut kCuts[] = {
    // Tiles have 64 keys: the first interval ends, and the second one begins, inside of one, several further or next.
    {"Gaps", Mask::none, 5, {{1, 300}, {3, 290}, {20, 150}, {2, 90}}},
    {"GapsWithinATile", Mask::none, 5, {{1, 40}, {20, 60}}},
    {"GapsOfItems", Mask::none, 70, {{1, 300}, {3, 290}, {20, 250}}, 128},
    {"MoreStatesThanLanes", Mask::causal, 0, {{1, 2200}, {2, 2130}}, 64},
    {"MoreStatesThanLanesAndTheLastOneWins", Mask::causal, 0, {{1, 2200}, {2, 2180}}, 64, true},
};

class Cuts : public ::testing::TestWithParam<const Cut*> {};

TEST_P(Cuts, LoseNoKeyAndTakeNoneTwice) {
  const Cut& cut = *GetParam();
  const std::vector<float> slopes{1, 1};
  for (const DType type : {DType::fp32, DType::bf16}) {
    Case c;
    c.q_dtype = c.kv_dtype = type;
    c.group = 2;
    c.head_dim_qk = 16;
    c.head_dim_vo = 8;
    c.mask = cut.mask;
    c.sinks = cut.sinks;
    c.lengths = cut.lengths;
    if (cut.rises) {
      c.variant = variants::alibi();
      c.tensors = {{"slopes", TensorView(slopes.data(), DType::fp32, {2})}};
    }
    Problem problem(c);
    problem.reference();
    const PlanMode mode = cut.split > 0 ? PlanMode::fixed_split : PlanMode::no_split;
    for (const Target* target : testing::targets_of_case(0))
      for (const DType compute : target->compute_types(problem.spec())) {
        if (compute == DType::fp32 && type != DType::fp32) continue;
        AttentionSpec spec = problem.spec();
        spec.compute = compute;
        const AttentionKernel kernel = build_on(*target, spec);
        problem.poison_outputs();
        run_on(*target, kernel, kernel.plan(problem.input(3, mode, cut.split)), problem.tensors());
        ASSERT_EQ(problem.compare(compute, *target), "") << target->name() << " " << to_string(c);
      }
  }
}
INSTANTIATE_TEST_SUITE_P(Of, Cuts, ::testing::Range(std::begin(kCuts), std::end(kCuts)),
                         [](const auto& cut) { return std::string(cut.param->name); });

}  // namespace
}  // namespace weft
