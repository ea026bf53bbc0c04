// Every operator on a card, where there is one, against the interpreter.
#include <gtest/gtest.h>

#include "sparse/operators/vector_unit.h"
#include "tests/sparse/cuda/card_run.h"

namespace weft::sparse::test {
void PrintTo(const ReadyCase& c, std::ostream* out) { *out << c.name; }

namespace {

class SparseOnCard : public ::testing::TestWithParam<ReadyCase> {};

TEST_P(SparseOnCard, ComputesWhatTheInterpreterDoes) { expect_as_interpreted(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Golden, SparseOnCard, ::testing::ValuesIn(all_cases()),
                         [](const auto& c) { return c.param.name; });

INSTANTIATE_TEST_SUITE_P(Ready, SparseOnCard, ::testing::ValuesIn(ready_cases(vector_unit(Device::cuda()))),
                         [](const auto& c) { return c.param.name; });

INSTANTIATE_TEST_SUITE_P(Mma, SparseOnCard, ::testing::ValuesIn(mma_cases()),
                         [](const auto& c) { return c.param.name; });

TEST(SparseCallsOnCard, AreAsOnTheCpu) {
  expect_calls_as_on_the_cpu({12, 1, 3, 32, 128, 144}, {"hyb(1, 2)", "bsr(2), coo()", "dia()", "sr_bcrs(4, 2)"});
}

TEST(SparseCallsOnCard, AddUpEdgesOfWholeCtasAndOfTheRest) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const int64_t feat : {1, 12, 32, 72, 128, 512}) expect_edges_as_on_the_cpu(dtype, feat);
}

TEST(SparseCallsOnCard, AddUpLongRowsInPieces) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const int64_t feat : {1, 8, 32, 128, 1024}) expect_long_rows_as_on_the_cpu(dtype, feat);
  for (const int64_t feat : {8, 32, 1024}) expect_long_gradients_as_on_the_cpu(feat);
}

TEST(SparseCallsOnCard, MultiplyRelationsByTensorCores) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const Edges edges : {Edges::single, Edges::plain, Edges::weighted})
      for (const auto& [feat_in, feat_out] : {std::pair<int64_t, int64_t>{16, 16}, {32, 32}, {256, 256}, {48, 80}})
        expect_relations_as_computed(edges, dtype, feat_in, feat_out);
}

}  // namespace
}  // namespace weft::sparse::test
