// Every pair of {types, form, layout, page size, group, heads, dims, mask, lengths, workers, mode, strides} against
// the fp64 reference, on each instruction set of this machine.
#include <gtest/gtest.h>

#include "attention/cpu/leaf.h"
#include "problem.h"

namespace weft {
namespace {

using testing::Case;
using testing::Problem;
using testing::Target;

constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};
constexpr KvForm kForms[] = {KvForm::padded, KvForm::ragged, KvForm::paged,
                             KvForm::paged,  KvForm::paged,  KvForm::paged};
constexpr int kPageSizes[] = {1, 1, 1, 3, 16, 64};  // beside kForms
constexpr int kGroups[] = {1, 3, 5, 7, 8};
constexpr int kDims[][2] = {{64, 64}, {128, 128}, {8, 8}, {80, 80}, {192, 128}, {72, 264}, {576, 512}, {24, 576}};
struct MaskChoice {
  Mask mask;
  int window;
  int sinks = 0;
};
constexpr MaskChoice kMasks[] = {{Mask::none, -2},   {Mask::causal, -2}, {Mask::causal, 20},
                                 {Mask::none, 5},    {Mask::custom, -2}, {Mask::custom_packed, -2},
                                 {Mask::causal, -1}, {Mask::none, -2, 4}};
const std::vector<std::pair<int, int>> kLengths[] = {{{1, 37}},        {{1, 0}, {1, 9}},
                                                     {{5, 3}, {1, 1}}, {{1, 130}, {1, 64}, {1, 65}},
                                                     {{40, 40}},       {{7, 90}, {0, 20}, {1, 300}},
                                                     {{33, 100}},      {{2, 70}, {100, 3}}};
struct ModeChoice {
  int workers;
  PlanMode mode;
  int split;
};
constexpr ModeChoice kModes[] = {{1, PlanMode::balanced, 0},     {2, PlanMode::balanced, 0}, {5, PlanMode::balanced, 0},
                                 {3, PlanMode::fixed_split, 64}, {2, PlanMode::no_split, 0}, {4, PlanMode::paper, 0}};

Case make_case(const std::vector<int>& row) {
  Case c;
  c.q_dtype = kTypes[row[0] / 9];
  c.kv_dtype = kTypes[row[0] / 3 % 3];
  c.o_dtype = kTypes[row[0] % 3];
  c.form = kForms[row[1]];
  c.page_size = kPageSizes[row[1]];
  c.layout = row[2] == 0 ? Layout::nhd : Layout::hnd;
  c.group = kGroups[row[3]];
  c.kv_heads = row[4] + 1;
  c.head_dim_qk = kDims[row[5]][0];
  c.head_dim_vo = kDims[row[5]][1];
  c.mask = kMasks[row[6]].mask;
  c.window = kMasks[row[6]].window;
  c.sinks = kMasks[row[6]].sinks;
  c.lengths = kLengths[row[7]];
  c.strided = row[9] == 1;
  c.five_d = row[9] == 2;
  return c;
}

// In parts, which run beside each other.
constexpr int kParts = 12;
class AttentionGrid : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Part, AttentionGrid, ::testing::Range(0, kParts));

TEST_P(AttentionGrid, AgreesWithTheReferenceWithinItsBound) {
  const auto rows = testing::pairwise({27, 6, 2, 5, 2, 8, 8, 8, 6, 3}, 7);
  for (size_t i = static_cast<size_t>(GetParam()); i < rows.size(); i += kParts) {
    const std::vector<int>& row = rows[i];
    const unsigned index = static_cast<unsigned>(i) + 1;
    Case c = make_case(row);
    c.seed = index;
    const ModeChoice& mode = kModes[row[8]];
    Problem problem(c);
    problem.reference();
    for (const Target* target : testing::targets_of_case(index))
      for (const DType compute : target->compute_types(problem.spec())) {
        SCOPED_TRACE("case " + std::to_string(index) + " " + target->name() + " products in " +
                     std::string(to_string(compute)) + " workers " + std::to_string(mode.workers) + " mode " +
                     std::string(to_string(mode.mode)) + ": " + to_string(c));
        AttentionSpec spec = problem.spec();
        spec.compute = compute;
        const AttentionKernel kernel = build_on(*target, spec);
        const Plan plan = kernel.plan(problem.input(mode.workers, mode.mode, mode.split));
        problem.poison_outputs();
        run_on(*target, kernel, plan, problem.tensors());
        ASSERT_EQ(problem.compare(compute, *target), "");
      }
  }
}

}  // namespace
}  // namespace weft
