// One captured graph on a card replays whatever plan within its bounds was uploaded last, with the bits of an eager run.
#include <gtest/gtest.h>

#include <random>

#include "attention/kernel.h"
#include "device/cuda/graph.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "tests/attention/kernels/problem.h"

namespace weft {
namespace {

using testing::Case;
using testing::Placed;
using testing::Problem;

TEST(CardGraph, ReplaysAnyPlanWithinItsBounds) {
  std::mt19937 random(20261123);
  cuda::Card& card = cuda::Card::at(0);
  const cuda::OwnedStream own = cuda::make_stream(card);
  const Stream stream = Stream::cuda(own.get());
  for (const DType type : {DType::fp32, DType::bf16}) {
    Case longest;
    longest.q_dtype = longest.kv_dtype = longest.o_dtype = type;
    longest.group = 4;
    longest.kv_heads = 2;
    longest.head_dim_qk = longest.head_dim_vo = 64;
    longest.mask = Mask::causal;
    longest.lengths = {{3, 700}, {1, 700}, {4, 700}, {2, 700}};
    Problem problem(longest);
    const AttentionKernel kernel = build(problem.spec(), Device::cuda());
    const PlanInput all = problem.input(8);
    const PlanBounds bounds{.max_requests = 4,
                            .max_rows = 10,
                            .max_pages = static_cast<int64_t>(all.pages.kv_page_indices.size()),
                            .max_kv_len = 700,
                            .page_size = 16,
                            .num_qo_heads = 8,
                            .num_kv_heads = 2,
                            .workers = 8};
    Workspace workspace(Device::cuda(), kernel.workspace_bytes(bounds)), eager(Device::cuda(), workspace.bytes());
    const Placed placed(*testing::targets().front(), problem.tensors());
    const AttentionTensors& tensors = placed.tensors();
    const auto plan_of = [&](const std::vector<int32_t>& lens, std::vector<int32_t>& indptr, std::vector<int32_t>& ids,
                             std::vector<int32_t>& last) {
      PlanInput input = all;
      indptr = {0};
      ids.clear();
      last.clear();
      for (size_t r = 0; r < lens.size(); ++r) {
        const int pages = (lens[r] + 15) / 16, begin = all.pages.kv_page_indptr[r];
        for (int i = 0; i < pages; ++i) ids.push_back(all.pages.kv_page_indices[static_cast<size_t>(begin + i)]);
        indptr.push_back(indptr.back() + pages);
        last.push_back(lens[r] == 0 ? 0 : lens[r] - (pages - 1) * 16);
      }
      input.pages.kv_page_indptr = indptr;
      input.pages.kv_page_indices = ids;
      input.pages.kv_last_page_len = last;
      input.bounds = &bounds;
      return kernel.plan(input);
    };
    std::vector<int32_t> indptr, ids, last;
    plan_of({700, 700, 700, 700}, indptr, ids, last).upload(workspace, stream);
    kernel.run(workspace, tensors, stream);  // kernels are made before the capture
    const cuda::Graph graph = cuda::capture(card, own.get(), [&] {
      EXPECT_THROW(plan_of({1, 1, 1, 1}, indptr, ids, last).upload(workspace, stream), Error);
      kernel.run(workspace, tensors, stream);
    });
    const auto bytes = static_cast<size_t>(tensors.o.size() * bits_of(type) / 8);
    std::string replayed(bytes, '\0'), expected(bytes, '\0');
    for (int round = 0; round < 200; ++round) {
      std::vector<int32_t> lens;
      for (int r = 0; r < 4; ++r) lens.push_back(4 + static_cast<int>(random() % 697));
      const Plan plan = plan_of(lens, indptr, ids, last);
      plan.upload(workspace, stream);
      cuda::launch(graph, own.get());
      cuda::copy_to_host(card, replayed.data(), tensors.o.data(), bytes, own.get());
      plan.upload(eager, stream);
      kernel.run(eager, tensors, stream);
      cuda::copy_to_host(card, expected.data(), tensors.o.data(), bytes, own.get());
      cuda::synchronize(card, own.get());
      ASSERT_EQ(replayed, expected) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace weft
