// The text of attention's kernels in the host machine: every pair of types, forms, dims, masks and ways to plan on
// small shapes, against the fp64 reference.
#include <gtest/gtest.h>

#include "host_target.h"
#include "tests/attention/kernels/problem.h"

namespace weft {
namespace {

using testing::Case;
using testing::host_machine;
using testing::Problem;

constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};
constexpr KvForm kForms[] = {KvForm::padded, KvForm::ragged, KvForm::paged, KvForm::paged};
constexpr int kPageSizes[] = {1, 1, 1, 16};  // beside kForms
constexpr int kGroups[] = {1, 3, 5, 20};
constexpr int kDims[][2] = {{8, 8}, {40, 40}, {72, 136}, {264, 24}};
struct MaskChoice {
  Mask mask;
  int window;
  int sinks = 0;
};
constexpr MaskChoice kMasks[] = {{Mask::none, -2},   {Mask::causal, -2},        {Mask::causal, 7},
                                 {Mask::custom, -2}, {Mask::custom_packed, -2}, {Mask::none, -2, 4}};
const std::vector<std::pair<int, int>> kLengths[] = {
    {{1, 37}}, {{1, 0}, {1, 9}}, {{5, 3}, {1, 1}}, {{3, 70}, {0, 20}, {1, 33}}, {{9, 40}}};
struct ModeChoice {
  int workers;
  PlanMode mode;
  int split;
};
constexpr ModeChoice kModes[] = {
    {1, PlanMode::balanced, 0}, {3, PlanMode::balanced, 0}, {2, PlanMode::fixed_split, 64}, {2, PlanMode::paper, 0}};

Case make_case(const std::vector<int>& row) {
  Case c;
  c.q_dtype = kTypes[row[0]];
  c.kv_dtype = kTypes[row[1]];
  c.o_dtype = kTypes[row[2]];
  c.form = kForms[row[3]];
  c.page_size = kPageSizes[row[3]];
  c.layout = row[4] == 0 ? Layout::nhd : Layout::hnd;
  c.group = kGroups[row[5]];
  c.kv_heads = row[6] + 1;
  c.head_dim_qk = kDims[row[7]][0];
  c.head_dim_vo = kDims[row[7]][1];
  c.mask = kMasks[row[8]].mask;
  c.window = kMasks[row[8]].window;
  c.sinks = kMasks[row[8]].sinks;
  c.lengths = kLengths[row[9]];
  c.strided = row[11] == 1;
  c.five_d = row[11] == 2;
  return c;
}

// In parts, which run beside each other.
class AttentionInTheHostMachine : public ::testing::TestWithParam<int> {
 public:
  static constexpr int kParts = 6;
};

TEST_P(AttentionInTheHostMachine, AgreesWithTheReferenceWithinItsBound) {
  const auto rows = testing::pairwise({3, 3, 3, 4, 2, 4, 2, 4, 6, 5, 4, 3}, 7);
  for (size_t i = static_cast<size_t>(GetParam()); i < rows.size(); i += kParts) {
    Case c = make_case(rows[i]);
    c.seed = static_cast<unsigned>(i) + 1;
    const ModeChoice& mode = kModes[rows[i][10]];
    SCOPED_TRACE("case " + std::to_string(i) + " workers " + std::to_string(mode.workers) + " mode " +
                 std::string(to_string(mode.mode)) + ": " + to_string(c));
    Problem problem(c);
    problem.reference();
    for (const DType compute : host_machine().compute_types(problem.spec())) {
      AttentionSpec spec = problem.spec();
      spec.compute = compute;
      const AttentionKernel kernel = build_on(host_machine(), spec);
      const Plan plan = kernel.plan(problem.input(mode.workers, mode.mode, mode.split));
      problem.poison_outputs();
      run_on(host_machine(), kernel, plan, problem.tensors());
      ASSERT_EQ(problem.compare(compute), "") << to_string(compute);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Part, AttentionInTheHostMachine, ::testing::Range(0, AttentionInTheHostMachine::kParts));

}  // namespace
}  // namespace weft
