// Even plans that a card makes from lengths that lie there: the planner's bytes, what is clamped, runs of them, rows.
#include <gtest/gtest.h>

#include "device/cuda/graph.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "even_plans.h"
#include "tests/attention/kernels/problem.h"

namespace weft {
namespace {

using testing::EvenBatch;
using testing::OnTarget;
using testing::Target;

const Target& card() { return *testing::targets().front(); }

// What the next synchronisation of the card says.
bool clamped() {
  try {
    Stream::cuda(nullptr).synchronize();
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_page) << error.what();
    EXPECT_NE(std::string(error.what()).find("see to kv_len, page_table"), std::string::npos) << error.what();
    return true;
  }
}

TEST(CardEven, MakesThePlanThatThePlannerUploads) {
  testing::expect_even_plans_of_the_planner(card(), [] { ASSERT_FALSE(clamped()); });
}

TEST(CardEven, ClampsWhatIsOutOfRangeWhichTheNextSynchronisationSays) {
  testing::expect_clamped_even_plans(card(), clamped);
}

TEST(CardRows, AreWhereThePlanSays) { testing::expect_rows_where_the_plan_says(card()); }

// One graph of plan and rows follows lengths that change on the card.
TEST(CardEven, IsMadeAnewByEachReplay) {
  cuda::Card& of = cuda::Card::at(0);
  const cuda::OwnedStream own = cuda::make_stream(of);
  const Stream stream = Stream::cuda(own.get());
  const AttentionKernel kernel = testing::even_kernel(card());
  EvenBatch b;
  b.kv = {200, 17, 90};
  const PlanBounds bounds = b.bounds();
  std::mt19937 random(13);
  const OnTarget kv_len(card(), b.kv), table(card(), testing::random_table(b, random));
  const OnTarget positions(card(), std::vector<int32_t>(3)), places(card(), std::vector<int32_t>(6));
  Workspace workspace(card().device(), kernel.workspace_bytes(bounds));
  const auto work = [&] {
    kernel.plan_on_device(b.on_device(kv_len.view({3}), table.view({3, 40})), bounds, workspace, stream);
    kernel.locate_rows(workspace, positions.view({3}), places.view({3, 2}), stream);
  };
  work();  // kernels are made before the capture
  const cuda::Graph graph = cuda::capture(of, own.get(), work);
  for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{200, 17, 90}, {1, 600, 33}, {64, 2, 599}}) {
    cuda::synchronize(of, own.get());
    cuda::copy_to_card(of, kv_len.data(), lengths.data(), lengths.size() * sizeof(int32_t), own.get());
    cuda::launch(graph, own.get());
    stream.synchronize();
    EXPECT_EQ(positions.fetch(), (std::vector<int32_t>{lengths[0] - 1, lengths[1] - 1, lengths[2] - 1}));
  }
}

}  // namespace
}  // namespace weft
