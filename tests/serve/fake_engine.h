// What tests of an engine over the fake model have in common: they step it themselves.
#pragma once

#include <utility>
#include <vector>

#include "tests/serve/fake_model.h"

namespace weft::testing {

struct FakeEngineTest : ::testing::Test {
  static void finish(serve::Engine& engine, int most = 20000) {
    while (engine.step()) ASSERT_GT(most--, 0) << "the engine does not come to an end";
  }
  static serve::Request greedy(std::vector<int32_t> prompt, int64_t max_tokens) {
    return {.prompt = std::move(prompt), .max_tokens = max_tokens, .sampling = {.temperature = 0.f}};
  }
};

}  // namespace weft::testing
