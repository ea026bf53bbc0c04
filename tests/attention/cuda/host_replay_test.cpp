// Captured launches in the host machine.
#include <gtest/gtest.h>

#include <utility>

#include "host_runtime.h"
#include "replay.h"

namespace weft {
namespace {

std::vector<std::function<void()>>& captured() {
  static std::vector<std::function<void()>> launches;
  return launches;
}

std::function<void()> capture(const std::function<void()>& work) {
  captured().clear();
  testing::is_capturing = [] { return true; };
  testing::defer_launch = [](std::function<void()> launch) {
    captured().push_back(std::move(launch));
    return true;
  };
  work();
  testing::is_capturing = nullptr;
  testing::defer_launch = nullptr;
  return [launches = captured()] {
    for (const auto& launch : launches) launch();
  };
}

TEST(HostMachineReplay, HasTheBitsOfEagerRunsForRandomBatches) {
  for (const DType type : {DType::fp32, DType::bf16})
    testing::replay_random_batches(testing::host_machine(),
                                   {.type = type, .head_dim = 16, .most_tokens = 160, .rounds = 4},
                                   {.stream = {}, .synchronize = [] {}, .capture = capture});
}

}  // namespace
}  // namespace weft
