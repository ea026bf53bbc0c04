// Captured launches in the host machine.
#include <gtest/gtest.h>

#include <utility>

#include "host_target.h"
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

class HostMachineReplay : public ::testing::TestWithParam<testing::ReplayCase> {};

TEST_P(HostMachineReplay, HasTheBitsOfEagerRunsForRandomBatches) {
  testing::expect_replays_like_eager_runs(testing::host_machine(), GetParam(),
                                          {.stream = {}, .synchronize = [] {}, .capture = capture}, 3, 1);
}

INSTANTIATE_TEST_SUITE_P(Plans, HostMachineReplay, ::testing::ValuesIn(testing::replay_cases(16, 160)),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace weft
