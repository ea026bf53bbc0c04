// Every operator on a card, where there is one, against the interpreter.
#include <gtest/gtest.h>

#include "tests/sparse/cuda/card_run.h"

namespace weft::sparse::test {
void PrintTo(const ReadyCase& c, std::ostream* out) { *out << c.name; }

namespace {

class SparseOnCard : public ::testing::TestWithParam<ReadyCase> {};

TEST_P(SparseOnCard, ComputesWhatTheInterpreterDoes) { expect_as_interpreted(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Golden, SparseOnCard, ::testing::ValuesIn(all_cases()),
                         [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace weft::sparse::test
