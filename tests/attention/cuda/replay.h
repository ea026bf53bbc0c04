// One captured launch that runs whichever plan of its bounds lies in the workspace, against eager runs of the same
// plans.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "replay_plans.h"

namespace weft::testing {

// How a device keeps what a work enqueues, and does it again.
struct Replayer {
  Stream stream;
  std::function<void()> synchronize;
  std::function<std::function<void()>(const std::function<void()>& work)> capture;
};

// Every kind of plan, with the types whose kernels differ there.
inline std::vector<ReplayCase> replay_cases(int head_dim, int most_tokens) {
  std::vector<ReplayCase> cases{
      {.name = "fp32", .type = DType::fp32},
      {.name = "bf16"},
      {.name = "decode", .qo_len = 1},
      {.name = "levels_fp32", .type = DType::fp32, .levels = 2},
      {.name = "levels", .levels = 2},
      {.name = "fixed_split", .mode = PlanMode::fixed_split},
      {.name = "even", .mode = PlanMode::even, .qo_len = 2},
      {.name = "blocks", .form = KvForm::block_sparse},
      {.name = "latent", .type = DType::fp32, .form = KvForm::latent},
      {.name = "custom_mask", .mask = Mask::custom},
  };
  for (ReplayCase& of : cases) of.head_dim = head_dim, of.most_tokens = most_tokens;
  return cases;
}

inline AttentionTensors of_rows(AttentionTensors tensors, int64_t rows) {
  for (TensorView* tensor : {&tensors.q, &tensors.o, &tensors.lse}) *tensor = tensor->slice(0, 0, rows);
  return tensors;
}

// Two captures, of a plan of nothing for few workers and of one for as many as may be: their grids are what later plans
// run with, of more and of fewer workers.
inline void expect_replays_like_eager_runs(const Target& target, const ReplayCase& of, const Replayer& replayer,
                                           int rounds, unsigned seed) {
  RandomPlans plans(of, seed);
  const AttentionKernel kernel = build_on(target, plans.spec());
  Workspace captured(target.device(), kernel.workspace_bytes(plans.bounds())), eager(target.device(), captured.bytes());
  const Placed of_captured(target, plans.problem().tensors()), of_eager(target, plans.problem().tensors());
  const auto run = [&](Workspace& workspace, const Placed& placed) {
    kernel.run(workspace, of_rows(placed.tensors(), plans.num_rows()), replayer.stream);
  };
  const auto output = [&](const Placed& placed) {
    replayer.synchronize();
    placed.fetch();
    return plans.problem().outputs();
  };
  for (const bool of_nothing : {true, false}) {
    const Plan any = plans.next(kernel, RandomPlans::kMostRequests);
    for (const Placed* placed : {&of_captured, &of_eager}) {  // kernels are made before the capture
      any.upload(captured, replayer.stream);
      run(captured, *placed);
    }
    const Plan first = of_nothing ? plans.next(kernel, 0, 2)
                                  : plans.next(kernel, RandomPlans::kMostRequests, RandomPlans::kMostWorkers);
    first.upload(captured, replayer.stream);
    const std::function<void()> replay = replayer.capture([&] { run(captured, of_captured); });
    for (int round = 0; round < rounds; ++round) {
      const Plan plan = plans.next(kernel);
      plan.upload(captured, replayer.stream);
      replay();
      replayer.synchronize();
      target.poison(eager);
      plan.upload(eager, replayer.stream);
      run(eager, of_eager);
      ASSERT_TRUE(output(of_captured) == output(of_eager))
          << of.name << " round " << round << " of seed " << seed << (of_nothing ? ", captured with nothing" : "");
    }
  }
}

}  // namespace weft::testing
