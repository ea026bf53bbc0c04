// A program of its own: it refuses one allocation after another of those that steps make. At most one request fails
// then, with a code; the others' answers are the same, no page is lost, and the engine goes on.
#include <gtest/gtest.h>

#include <atomic>
#include <new>

#include "tests/serve/fake_model.h"
#include "tests/support/allocations.h"
#include "tests/support/sanitizers.h"

namespace weft::serve {
namespace {

std::atomic<bool> armed{false};
std::atomic<long> left{-1};  // allocations until one is refused; below 0: none is

void count() {
  if (armed && left >= 0 && left-- == 0) throw std::bad_alloc();
}
const bool is_told = (testing::before_allocation = count) != nullptr;

using testing::Collected;
using testing::FakeModel;
using testing::prompt_of;

// The test's own work has what it needs.
struct Disarmed {
  const bool before = armed.exchange(false);
  ~Disarmed() { armed = before; }
};

// A model's calls fail as a whole or not at all.
class FailingModel : public FakeModel {
 public:
  using FakeModel::FakeModel;
  Sequence add(std::span<const int32_t> pages) override {
    count();
    const Disarmed disarmed;
    return FakeModel::add(pages);
  }
  Sequence fork(Sequence sequence, int64_t tokens) override {
    count();
    const Disarmed disarmed;
    return FakeModel::fork(sequence, tokens);
  }
  void hold(std::span<const int32_t> pages) override {
    count();
    const Disarmed disarmed;
    FakeModel::hold(pages);
  }
  std::span<float> run(std::span<const Piece> pieces, const SharedPrefixes& prefixes) override {
    count();
    const Disarmed disarmed;
    return FakeModel::run(pieces, prefixes);
  }
};

// Shared beginnings, choices, a stop text, log-probabilities, a reproducible one, more than the pool holds at once.
std::vector<Request> requests(const std::vector<int32_t>& prompt) {
  std::vector<Request> all(6);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].prompt.assign(prompt.begin(), prompt.begin() + static_cast<int64_t>(10 + 7 * i));
    all[i].prompt.push_back(static_cast<int32_t>(5 + i));
    all[i].max_tokens = 18;
    all[i].sampling.temperature = 0.f;
  }
  all[1].n = 3;
  all[2].logprobs = 2, all[2].prompt_logprobs = true;
  all[3].reproducible = true;
  all[4].stop = {"no such text"};
  return all;
}

struct Outcome {
  std::vector<Collected> got;
  int failed = 0;
};

Outcome play(Engine& engine, const std::vector<Request>& asked, long* left_then = nullptr) {
  Outcome outcome{std::vector<Collected>(asked.size())};
  for (size_t i = 0; i < asked.size(); ++i)
    engine.submit(asked[i], [handler = outcome.got[i].handler()](const Update& update) {
      const Disarmed disarmed;
      handler(update);
    });
  armed = true;
  for (int steps = 0; engine.step() && steps < 2000; ++steps) {
  }
  armed = false;
  if (left_then != nullptr) *left_then = left;
  left = -1;
  for (int steps = 0; engine.step() && steps < 2000; ++steps) {
  }
  for (const Collected& got : outcome.got) {
    EXPECT_TRUE(got.last);
    if (got.updates.empty() || got.updates.back().finish != "error") continue;
    ++outcome.failed;
    EXPECT_EQ(got.updates.back().error_code, "out_of_memory");
  }
  return outcome;
}

void expect_the_same(const Outcome& outcome, const Outcome& expected, long refused) {
  EXPECT_LE(outcome.failed, 1) << refused;
  for (size_t i = 0; i < outcome.got.size(); ++i) {
    if (!outcome.got[i].updates.empty() && outcome.got[i].updates.back().finish == "error") continue;
    EXPECT_EQ(outcome.got[i].ids, expected.got[i].ids) << "request " << i << " after allocation " << refused;
    EXPECT_EQ(outcome.got[i].text, expected.got[i].text) << i;
  }
}

void expect_no_page_lost(const Engine& engine) {
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.requests_running + stats.requests_waiting, 0);
  EXPECT_EQ(stats.pages_free + stats.pages_cached, stats.pages);
  EXPECT_EQ(stats.pages_evictable, stats.pages_cached);
}

// Refuses one allocation of the load, `times` different ones; 0: each of them.
template <class MakeEngine>
void refuse_some(const MakeEngine& make, const std::vector<Request>& asked, long times, int* failed) {
  Engine whole = make();
  constexpr long kMany = 1L << 40;
  left = kMany;
  long made = 0;
  const Outcome expected = play(whole, asked, &made);
  made = kMany - made;
  ASSERT_EQ(expected.failed, 0);
  ASSERT_GT(made, times);
  if (times == 0) times = made;
  for (long i = 0; i < times && !::testing::Test::HasFailure(); ++i) {
    Engine engine = make();
    const long refused = i * made / times;
    left = refused;
    const Outcome outcome = play(engine, asked);
    *failed += outcome.failed;
    expect_the_same(outcome, expected, refused);
    expect_no_page_lost(engine);
    expect_the_same(play(engine, asked), expected, refused);
  }
}

Engine make_engine() {
  return EngineMaker::make(std::make_unique<FailingModel>(4, 40, 128, true), testing::fake_vocabulary(),
                           {.max_running = 6});
}

#ifdef WEFT_EVERY_ALLOCATION

TEST(ServeAllocation, WhateverAStepLacksFailsOneRequestAtMost) {
  int failed = 0;
  refuse_some(make_engine, requests(prompt_of(60)), 0, &failed);
  EXPECT_GT(failed, 0) << "some allocations belong to one request";
}

#else

TEST(ServeAllocation, WhatAStepLacksFailsOneRequestAtMost) {
  int failed = 0;
  refuse_some(make_engine, requests(prompt_of(60)), testing::kUnderThreadSanitizer ? 30 : 120, &failed);
  EXPECT_GT(failed, 0) << "some allocations belong to one request";
}

// Those of the layers and their workers, too.
TEST(ServeAllocation, WhatTheForwardPassLacksFailsOneRequestAtMost) {
  const ModelFile file(WEFT_TEST_DATA "/stories260K.gguf");
  const Tokenizer tokenizer(file);
  WorkerTeam team(2);
  int failed = 0;
  refuse_some(
      [&] {
        EngineOptions options{.forward = {.precision = Precision::exact}, .kv_tokens = 512, .max_running = 6};
        options.forward.team = &team;
        return Engine(file, tokenizer, options);
      },
      requests(prompt_of(60)), testing::kUnderThreadSanitizer ? 4 : 12, &failed);
}

#endif

}  // namespace
}  // namespace weft::serve
