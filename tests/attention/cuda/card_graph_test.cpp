// One captured graph on a card replays whatever plan within its bounds was uploaded last, with the bits of an eager
// run.
#include <gtest/gtest.h>

#include <memory>

#include "device/cuda/graph.h"
#include "device/cuda/stream.h"
#include "replay.h"

namespace weft {
namespace {

class CardGraph : public ::testing::TestWithParam<testing::ReplayCase> {};

TEST_P(CardGraph, HasTheBitsOfEagerRunsForRandomBatches) {
  cuda::Card& card = cuda::Card::at(0);
  const cuda::OwnedStream own = cuda::make_stream(card);
  const testing::Replayer replayer{.stream = Stream::cuda(own.get()),
                                   .synchronize = [&] { cuda::synchronize(card, own.get()); },
                                   .capture = [&](const std::function<void()>& work) -> std::function<void()> {
                                     auto graph = std::make_shared<cuda::Graph>(cuda::capture(card, own.get(), work));
                                     return [graph, &own] { cuda::launch(*graph, own.get()); };
                                   }};
  testing::expect_replays_like_eager_runs(*testing::targets().front(), GetParam(), replayer, 1000, 1);
}

INSTANTIATE_TEST_SUITE_P(Plans, CardGraph, ::testing::ValuesIn(testing::replay_cases(64, 704)),
                         [](const auto& of) { return of.param.name; });

// A graph would copy what the pinned slot holds later.
TEST(CardGraphUpload, IsRefusedInsideACapture) {
  cuda::Card& card = cuda::Card::at(0);
  const cuda::OwnedStream own = cuda::make_stream(card);
  testing::Case c;
  c.lengths = {{1, 40}};
  testing::Problem problem(c);
  const AttentionKernel kernel = build_on(*testing::targets().front(), problem.spec());
  const Plan plan = kernel.plan(problem.input(2));
  Workspace workspace(Device::cuda(), plan.workspace_bytes());
  (void)cuda::capture(card, own.get(), [&] { EXPECT_THROW(plan.upload(workspace, Stream::cuda(own.get())), Error); });
}

}  // namespace
}  // namespace weft
