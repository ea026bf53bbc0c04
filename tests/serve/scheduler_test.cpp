// What the scheduler promises of steps, pages and turns, each at the border where it could be off by one.
#include "serve/scheduler.h"

#include "serve/engine.h"
#include "tests/serve/fake_engine.h"

namespace weft::serve {
namespace {

using testing::Collected;
using testing::fake_answer;
using testing::fake_vocabulary;
using testing::FakeModel;
using testing::kFakeEnd;
using testing::prompt_of;

// Which rows each step ran, and the most pages that sequences had at once.
struct WatchedModel : FakeModel {
  using FakeModel::FakeModel;
  std::vector<std::vector<int64_t>> rows;
  std::set<Sequence> sequences;
  int64_t most_pages = 0;
  Sequence add(std::span<const int32_t> pages) override { return *sequences.insert(FakeModel::add(pages)).first; }
  Sequence fork(Sequence sequence, int64_t tokens) override {
    const Sequence forked = *sequences.insert(FakeModel::fork(sequence, tokens)).first;
    count_pages();
    return forked;
  }
  void release(Sequence sequence) override {
    sequences.erase(sequence);
    FakeModel::release(sequence);
  }
  std::span<float> run(std::span<const Piece> pieces, const SharedPrefixes& prefixes) override {
    rows.emplace_back();
    for (const Piece& piece : pieces) rows.back().push_back(static_cast<int64_t>(piece.tokens.size()));
    const auto logits = FakeModel::run(pieces, prefixes);
    count_pages();
    return logits;
  }
  void count_pages() {
    std::set<int32_t> used;
    for (const Sequence sequence : sequences)
      for (const int32_t page : FakeModel::pages(sequence)) used.insert(page);
    most_pages = std::max(most_pages, static_cast<int64_t>(used.size()));
  }
};

constexpr int kPage = 4;

// Steps take no time: what they cost is what is believed of them before the first one.
struct SchedulerTest : testing::FakeEngineTest {
  WatchedModel* model = nullptr;
  Engine make(int64_t pages, const EngineOptions& options = {}) {
    auto made = std::make_unique<WatchedModel>(kPage, pages, 1000, true);
    model = made.get();
    return EngineMaker::make(std::move(made), fake_vocabulary(), options, [] { return Clock::time_point(); });
  }
  static Request with_prompt_logprobs(std::vector<int32_t> prompt, int64_t max_tokens) {
    Request request = greedy(std::move(prompt), max_tokens);
    request.logprobs = 1, request.prompt_logprobs = true;
    return request;
  }
  static Request of_choices(Request request, int n) {
    request.n = n;
    return request;
  }
  // Of each request in order of arrival, whether it runs.
  static std::vector<bool> running(Engine& engine) {
    static_cast<void>(engine.view());
    engine.step();
    std::vector<bool> all;
    for (const RunningRequest& request : engine.view().requests) all.push_back(request.running);
    return all;
  }
};

// ---------------------------------------------------------------- what a preemption leaves as it was

TEST_F(SchedulerTest, GivesTheLogprobsOfAPromptOnceThoughItWasPreemptedInTheMiddleOfIt) {
  Collected alone;
  Engine quiet = make(200);
  quiet.submit(with_prompt_logprobs(prompt_of(400, 2), 3), alone.handler());
  finish(quiet);

  Engine engine = make(120);
  Collected older, younger;
  engine.submit(of_choices(greedy(prompt_of(8), 50), 8), older.handler());
  engine.step();
  engine.submit(with_prompt_logprobs(prompt_of(400, 2), 3), younger.handler());
  for (int most = 1000; engine.stats().preemptions == 0; engine.step()) ASSERT_GT(most--, 0);
  ASSERT_TRUE(younger.updates.empty()) << "it was preempted too late for this test";
  finish(engine);
  ASSERT_EQ(younger.updates.at(0).prompt.size(), 399u);
  for (size_t i = 0; i < 399; ++i) {
    EXPECT_EQ(younger.updates[0].prompt[i].id, prompt_of(400, 2)[i + 1]) << i;
    EXPECT_EQ(younger.updates[0].prompt[i].logprob, alone.updates.at(0).prompt[i].logprob) << i;
  }
  EXPECT_EQ(younger.ids[0], alone.ids[0]);
}

TEST_F(SchedulerTest, SaysHowMuchWasCachedWhenARequestBeganWhateverItReusesAfterAPreemption) {
  Engine engine = make(20);
  Collected got[2];
  for (int i = 0; i < 2; ++i) engine.submit(greedy(prompt_of(8, i), 50), got[i].handler());
  finish(engine);
  ASSERT_GT(engine.stats().preemptions, 0u);
  for (const Collected& each : got) EXPECT_EQ(each.updates.back().cached_tokens, 0);
}

TEST_F(SchedulerTest, CountsEachTokenOfAPromptThatIsComputedAndNoTokenOfAnAnswer) {
  Engine engine = make(200);
  Collected got;
  engine.submit(of_choices(greedy(prompt_of(70), 9), 3), got.handler());
  finish(engine);
  EXPECT_EQ(engine.stats().prompt_tokens, 70u);
  EXPECT_EQ(engine.stats().prompt_tokens_computed, 70u);
}

TEST_F(SchedulerTest, PreemptsTheYoungestAloneAndLetsItInAgainBeforeAllWhoWait) {
  Engine engine = make(20, {.max_running = 3});
  Collected got[4];
  for (int i = 0; i < 3; ++i) engine.submit(greedy(prompt_of(8, i), i == 0 ? 20 : 40), got[i].handler());
  for (int most = 1000; engine.stats().preemptions == 0; engine.step()) ASSERT_GT(most--, 0);
  const size_t before = got[2].ids[0].size();
  Request important = greedy(prompt_of(8, 3), 4);
  important.priority = 100;
  size_t meanwhile = 0;  // tokens of the youngest when the important one begins
  engine.submit(important, [&](const Update& update) {
    if (got[3].updates.empty()) meanwhile = got[2].ids[0].size();
    got[3].handler()(update);
  });
  EXPECT_EQ(running(engine), (std::vector<bool>{true, true, false, false}));
  finish(engine);
  EXPECT_GT(meanwhile, before);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(got[i].ids[0], fake_answer(prompt_of(8, i), i == 0 ? 20 : i == 3 ? 4 : 40)) << i;
}

TEST_F(SchedulerTest, ChoicesOfAPreemptedRequestGoOnSideBySide) {
  Engine engine = make(26);
  Collected older, many;
  engine.submit(greedy(prompt_of(8), 60), older.handler());
  engine.submit(of_choices(greedy(prompt_of(10, 2), 24), 3), many.handler());
  do {
    for (int i = 1; i < 3; ++i) ASSERT_EQ(many.ids[i].size(), many.ids[0].size());
  } while (engine.step());
  EXPECT_GT(engine.stats().preemptions, 0u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(many.ids[i], fake_answer(prompt_of(10, 2), 24)) << i;
}

// What throws outside of a request's own work loses nothing.
TEST_F(SchedulerTest, TriesAgainWhereAStepCannotBegin) {
  struct Forgetful : FakeModel {
    using FakeModel::FakeModel;
    int adds = 0;
    Sequence add(std::span<const int32_t> pages) override {
      if (adds++ == 1) throw std::bad_alloc();
      return FakeModel::add(pages);
    }
  };
  auto made = std::make_unique<Forgetful>(kPage, 100);
  const Forgetful& forgetful = *made;
  Engine engine = EngineMaker::make(std::move(made), fake_vocabulary(), {});
  Collected got[2];
  for (int i = 0; i < 2; ++i) {
    engine.submit(greedy(prompt_of(8, i), 9), got[i].handler());
    engine.step();
  }
  finish(engine);
  EXPECT_GT(forgetful.adds, 2);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(got[i].ids[0], fake_answer(prompt_of(8, i), 9)) << i;
}

// ---------------------------------------------------------------- pages, to the last one

// A pool of as many pages as a load ever has at once is enough for it: nobody is preempted.
TEST_F(SchedulerTest, NeedsNoPageMoreThanItsSequencesHave) {
  const auto play = [&](int64_t pages, const std::vector<Request>& requests, const EngineOptions& options) {
    Engine engine = make(pages, options);
    std::vector<Collected> got(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      engine.submit(requests[i], got[i].handler());
      if (i == 0) engine.step();  // the first one is older
    }
    finish(engine);
    for (size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(got[i].ids[0], fake_answer(requests[i].prompt, static_cast<size_t>(requests[i].max_tokens)));
    EXPECT_EQ(engine.stats().preemptions, 0u);
    return model->most_pages;
  };
  const std::vector<std::vector<Request>> loads = {
      {greedy(prompt_of(8), 9), greedy(prompt_of(8, 2), 9)},
      {of_choices(greedy(prompt_of(8), 40), 4), of_choices(greedy(prompt_of(160, 2), 1), 3)},
      {of_choices(greedy(prompt_of(8), 40), 4), of_choices(greedy(prompt_of(159, 2), 1), 3)}};
  for (size_t load = 0; load < loads.size(); ++load) {
    const EngineOptions options{.max_running = 8, .max_step_rows = 20};
    const int64_t most = play(1000, loads[load], options);
    SCOPED_TRACE(::testing::Message() << "load " << load << ", " << most << " pages");
    play(most, loads[load], options);
  }
}

// The second waits for pages that the first has, or will take as it goes on: nobody is preempted.
TEST_F(SchedulerTest, StartsARequestOnlyWithRoomBesideWhatARunningOneTakes) {
  const struct {
    int64_t pages;
    Request first;
    int64_t tokens;                                                 // of the second
  } loads[] = {{5, greedy(prompt_of(9), 4), 2},                     // three pages
               {43, with_prompt_logprobs(prompt_of(160), 2), 20}};  // 41 pages, in three steps
  for (const auto& load : loads) {
    Engine engine = make(load.pages);
    Collected first, second;
    engine.submit(load.first, first.handler());
    engine.submit(greedy(prompt_of(8, 2), load.tokens), second.handler());
    finish(engine);
    EXPECT_EQ(engine.stats().preemptions, 0u) << load.pages;
    EXPECT_EQ(second.ids[0], fake_answer(prompt_of(8, 2), static_cast<size_t>(load.tokens))) << load.pages;
  }
}

TEST_F(SchedulerTest, AnAnswerWithoutALengthMayTakeAllPages) {
  Engine engine = make(10);
  Collected got;
  engine.submit({.prompt = prompt_of(5), .sampling = {.temperature = 0.f}}, got.handler());
  finish(engine);
  EXPECT_EQ(got.ids[0], fake_answer(prompt_of(5), 35));
}

// What one of a request's choices leaves in the cache may be pages that the others still use: evicting them frees none.
TEST_F(SchedulerTest, PreemptsWhereWhatItEvictsIsStillInUse) {
  Request many = with_prompt_logprobs(prompt_of(40), 30);
  many.n = 3, many.sampling.temperature = 5.f, many.logit_bias = {{kFakeEnd, 10.f}};
  // A seed with which the first choice ends long before the others.
  std::map<int, std::vector<int32_t>> wanted;
  for (uint64_t seed = 0; wanted.empty(); ++seed) {
    ASSERT_LT(seed, 2000u);
    Engine alone = make(1000);
    Collected got;
    many.seed = seed;
    alone.submit(many, got.handler());
    finish(alone);
    const size_t first = got.ids[0].size();
    if (first > 0 && first < 4 && got.ids[1].size() > 20 && got.ids[2].size() > 20) wanted = got.ids;
  }
  Engine engine = make(36);
  Collected beginning, older, got;
  engine.submit(greedy(prompt_of(16), 1), beginning.handler());  // so that the others' pages of it are their own
  finish(engine);
  engine.submit(greedy(prompt_of(8, 2), 80), older.handler());
  for (int i = 0; i < 40; ++i) engine.step();
  engine.submit(many, got.handler());
  finish(engine);
  EXPECT_GT(engine.stats().preemptions, 0u);
  EXPECT_EQ(older.ids[0], fake_answer(prompt_of(8, 2), 80));
  EXPECT_EQ(got.ids, wanted);
}

// ---------------------------------------------------------------- who waits for whose prompt

TEST_F(SchedulerTest, WaitsForNoPromptThatIsPausedOrOfAnotherKindOrKey) {
  struct Case {
    const char* what;
    bool pause, reproducible;
    std::string key;
  };
  for (const Case& c : {Case{"paused", true, false, ""}, {"kind", false, true, ""}, {"key", false, false, "b"}}) {
    SCOPED_TRACE(c.what);
    Engine engine = make(400);
    Collected first, second;
    Request request = with_prompt_logprobs(prompt_of(600), 2);  // whose steps leave rows to others
    request.reproducible = c.reproducible;
    const RequestId id = engine.submit(request, first.handler());
    engine.step();
    if (c.pause) engine.pause(id, true);
    request = greedy(prompt_of(600), 2);
    request.key = c.key;
    engine.submit(request, second.handler());
    EXPECT_EQ(running(engine), (std::vector<bool>{true, true}));
    if (c.pause) finish(engine);
    EXPECT_EQ(second.last, c.pause);
    engine.pause(id, false);
    finish(engine);
    for (Collected* got : {&first, &second}) EXPECT_EQ(got->ids[0], fake_answer(prompt_of(600), 2));
  }
}

TEST_F(SchedulerTest, ARequestStartsAsSoonAsAllThatItSharesIsCached) {
  Engine engine = make(100, {.max_running = 4, .max_step_rows = 20});
  Collected got[2];
  for (Collected& each : got) engine.submit(greedy(prompt_of(64), 4), each.handler());
  for (int i = 0; i < 4; ++i) engine.step();  // 20, 40, 60, and 4 of each
  EXPECT_EQ(model->rows, (std::vector<std::vector<int64_t>>{{20}, {20}, {20}, {4, 4}}));
  for (Collected& each : got) EXPECT_EQ(each.ids[0].size(), 1u);
}

// Of a reproducible prompt whole cuts are cached, so that a longer one goes on where they end.
TEST_F(SchedulerTest, ALongerReproduciblePromptIsCachedBehindAShorterOne) {
  Engine engine = make(400);
  Collected got[3];
  for (int i = 0; i < 3; ++i) {
    Request request = greedy(prompt_of(i == 0 ? 200 : 400), 2);
    request.reproducible = true;
    engine.submit(request, got[i].handler());
    finish(engine);
    EXPECT_EQ(got[i].updates.back().cached_tokens, i == 0 ? 0 : i == 1 ? 128 : 384);
  }
}

TEST_F(SchedulerTest, ARequestDoesNotWaitForAPromptThatAddsNothingToWhatIsCached) {
  Engine engine = make(400);
  Collected before, logprobs, after;
  engine.submit(greedy(prompt_of(41), 1), before.handler());
  finish(engine);
  engine.submit(with_prompt_logprobs(prompt_of(600), 1), logprobs.handler());  // computes all again
  engine.submit(greedy(prompt_of(41), 1), after.handler());
  engine.step();
  EXPECT_EQ(after.ids[0].size(), 1u);
  finish(engine);
}

// ---------------------------------------------------------------- rows, choices and turns

// Where tokens of others leave no time at all, one prompt of a step goes on, by little.
TEST_F(SchedulerTest, OnePromptOfAStepGoesOnWhateverTheTargetSays) {
  for (const bool reproducible : {false, true}) {
    Engine engine = make(1000, {.target_itl_s = 1e-9});
    Collected got[3];
    const RequestId id = engine.submit(greedy(prompt_of(8), 200), got[0].handler());
    engine.step();
    engine.pause(id, true);  // so that both prompts begin
    for (int i = 1; i < 3; ++i) {
      Request request = with_prompt_logprobs(prompt_of(700, i), 2);
      request.reproducible = reproducible;
      engine.submit(request, got[i].handler());
    }
    engine.step();
    engine.pause(id, false);
    model->rows.clear();
    for (int i = 0; i < 3; ++i) engine.step();
    for (std::vector<int64_t>& rows : model->rows) {
      std::sort(rows.begin(), rows.end());
      EXPECT_EQ(rows, (std::vector<int64_t>{1, reproducible ? Scheduler::kReproducibleCut : 16}));
    }
    finish(engine);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(got[i].finish[0], "length");
  }
}

TEST_F(SchedulerTest, NeitherComputesNorDrawsForAPausedRequest) {
  Engine engine = make(100);
  Collected paused, other;
  const RequestId id = engine.submit(greedy(prompt_of(8), 20), paused.handler());
  engine.submit(greedy(prompt_of(8, 2), 20), other.handler());
  engine.step();
  engine.pause(id, true);
  finish(engine);
  EXPECT_EQ(paused.ids[0].size(), 1u);
  EXPECT_EQ(other.ids[0].size(), 20u);
  engine.pause(id, false);
  finish(engine);
  EXPECT_EQ(paused.ids[0], fake_answer(prompt_of(8), 20));
}

TEST_F(SchedulerTest, RunsAsManyChoicesAsAreAllowedAndNoMore) {
  Engine engine = make(100, {.max_running = 4});
  Collected got[3];
  for (int i = 0; i < 3; ++i) engine.submit(of_choices(greedy(prompt_of(8, i), 20), 2), got[i].handler());
  EXPECT_EQ(running(engine), (std::vector<bool>{true, true, false}));
  finish(engine);
}

// Keys that nobody asks with any more are forgotten, but not while others wait for their turn.
TEST_F(SchedulerTest, KeysTakeTurnsHoweverManyThereWere) {
  // A step has room for one prompt.
  Engine engine = make(100, {.max_running = 4, .max_step_rows = 4, .max_queued = 4000, .max_queued_tokens = 100000});
  std::string order;
  const auto ask = [&](const std::string& key) {
    Request request = greedy(prompt_of(4), 1);
    request.key = key;
    engine.submit(request, [&order, key](const Update&) { order += key.substr(0, 1); });
  };
  for (int i = 0; i < 6; ++i) ask(i < 4 ? "a" : "b");
  for (int i = 0; i < 1100; ++i) ask("once " + std::to_string(i));
  finish(engine);
  EXPECT_EQ(order, "ab" + std::string(1100, 'o') + "abaa");
}

}  // namespace
}  // namespace weft::serve
