// One captured launch that runs whichever plan of its bounds lies in the workspace, against eager runs of the same
// plans.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/attention/kernels/problem.h"

namespace weft::testing {

// How a device keeps what a work enqueues, and does it again.
struct Replayer {
  Stream stream;
  std::function<void()> synchronize;
  std::function<std::function<void()>(const std::function<void()>& work)> capture;
};

struct ReplayCase {
  DType type = DType::fp32;
  int head_dim = 64, most_tokens = 704, rounds = 100;  // tokens in whole pages of 16
  unsigned seed = 1;
};

// Batches of 1 to 4 requests, 10 query tokens in all, with lengths from 0 and pages from anywhere, on 8 workers.
inline void replay_random_batches(const Target& target, const ReplayCase& of, const Replayer& replayer) {
  std::mt19937 random(of.seed);
  Case longest;
  longest.q_dtype = longest.kv_dtype = longest.o_dtype = of.type;
  longest.group = 4;
  longest.kv_heads = 2;
  longest.head_dim_qk = longest.head_dim_vo = of.head_dim;
  longest.mask = Mask::causal;
  for (const int rows : {3, 1, 4, 2}) longest.lengths.push_back({rows, of.most_tokens});
  Problem problem(longest);
  const AttentionKernel kernel = build_on(target, problem.spec());
  const PlanInput all = problem.input(8);
  const std::vector<int32_t> pool(all.pages.kv_page_indices.begin(), all.pages.kv_page_indices.end());
  const PlanBounds bounds{.max_requests = 4,
                          .max_rows = 10,
                          .max_pages = static_cast<int64_t>(pool.size()),
                          .max_kv_len = of.most_tokens,
                          .page_size = 16,
                          .num_qo_heads = 8,
                          .num_kv_heads = 2,
                          .workers = 8};
  Workspace captured(target.device(), kernel.workspace_bytes(bounds)), eager(target.device(), captured.bytes());
  const Placed placed(target, problem.tensors());
  const auto random_plan = [&] {
    const int requests = 1 + static_cast<int>(random() % 4);
    std::vector<int32_t> qo_indptr{0}, page_indptr{0}, ids, last;
    for (int r = 0; r < requests; ++r) {
      const int left = 10 - qo_indptr.back(), after = requests - 1 - r;
      qo_indptr.push_back(r == requests - 1 ? 10 : qo_indptr.back() + static_cast<int>(random() % (left - after + 1)));
      const int tokens = random() % 8 == 0 ? 0 : 1 + static_cast<int>(random() % static_cast<unsigned>(of.most_tokens));
      const int pages = (tokens + 15) / 16;
      for (int i = 0; i < pages; ++i) ids.push_back(pool[random() % pool.size()]);
      page_indptr.push_back(page_indptr.back() + pages);
      last.push_back(tokens == 0 ? 0 : tokens - (pages - 1) * 16);
    }
    PlanInput input = all;
    input.qo_indptr = qo_indptr;
    input.pages.kv_page_indptr = page_indptr;
    input.pages.kv_page_indices = ids;
    input.pages.kv_last_page_len = last;
    input.bounds = &bounds;
    return kernel.plan(input);
  };
  const auto output = [&] {
    replayer.synchronize();
    placed.fetch();
    return problem.outputs();
  };
  random_plan().upload(captured, replayer.stream);
  kernel.run(captured, placed.tensors(), replayer.stream);  // kernels are made before the capture
  const std::function<void()> replay =
      replayer.capture([&] { kernel.run(captured, placed.tensors(), replayer.stream); });
  for (int round = 0; round < of.rounds; ++round) {
    const Plan plan = random_plan();
    plan.upload(captured, replayer.stream);
    replay();
    const std::string replayed = output();
    plan.upload(eager, replayer.stream);
    kernel.run(eager, placed.tensors(), replayer.stream);
    ASSERT_TRUE(replayed == output()) << "round " << round << " of seed " << of.seed;
  }
}

}  // namespace weft::testing
