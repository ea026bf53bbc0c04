#include "serve/engine.h"

#include <future>
#include <thread>

#include "serve/request_checks.h"
#include "tests/serve/fake_engine.h"
#include "weft/error.h"

namespace weft::serve {
namespace {

using testing::Collected;
using testing::fake_answer;
using testing::fake_vocabulary;
using testing::FakeModel;
using testing::kFakeEnd;
using testing::prompt_of;

const std::vector<std::pair<int32_t, float>> kEndNow{{kFakeEnd, 100.f}};

// A time that passes when a test says so.
struct Watch {
  Clock::time_point at = {};
  void pass(double seconds) { at += std::chrono::round<Clock::duration>(std::chrono::duration<double>(seconds)); }
  Now now() {
    return [this] { return at; };
  }
};

struct EngineTest : testing::FakeEngineTest {
  FakeModel* model = nullptr;
  Watch watch;
  Engine make(int64_t pages = 64, EngineOptions options = {}, bool reproducible = false) {
    auto made = std::make_unique<FakeModel>(4, pages, 128, reproducible);
    model = made.get();
    return EngineMaker::make(std::move(made), fake_vocabulary(), options);
  }
  // Whose steps take no time.
  Engine make_watched(const EngineOptions& options) {
    return EngineMaker::make(std::make_unique<FakeModel>(4, 64, 128), fake_vocabulary(), options, watch.now());
  }
};

TEST_F(EngineTest, AnswersAlone) {
  Engine engine = make();
  Collected got;
  engine.submit(greedy(prompt_of(10), 6), got.handler());
  finish(engine);
  EXPECT_EQ(got.ids[0], fake_answer(prompt_of(10), 6));
  EXPECT_EQ(got.finish[0], "length");
  ASSERT_TRUE(got.last);
  EXPECT_EQ(got.updates.back().prompt_tokens, 10);
  EXPECT_EQ(got.updates.back().output_tokens, 6);
  EXPECT_EQ(engine.stats().requests_finished, 1u);
}

TEST_F(EngineTest, UsesIdleTimeAndAnswersBeforeAllOfItsWorkIsDone) {
  Engine engine = make();
  constexpr int kMuch = 1 << 30;
  model->idle_work = kMuch;
  std::thread thread([&] { engine.run(); });
  while (model->idle_work == kMuch) std::this_thread::yield();
  std::promise<void> answered;
  engine.submit(greedy(prompt_of(10), 6), [&](const Update& update) {
    if (update.last) answered.set_value();
  });
  EXPECT_EQ(answered.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_GT(model->idle_work, 0);
  model->idle_work = 0;
  engine.stop();
  thread.join();
}

TEST_F(EngineTest, AnswersManyTogetherAsEachAlone) {
  Engine engine = make(200);
  std::vector<Collected> got(20);
  for (int i = 0; i < 20; ++i)
    engine.submit(greedy(prompt_of(5 + static_cast<size_t>(i), i), 3 + i), got[static_cast<size_t>(i)].handler());
  finish(engine);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(got[static_cast<size_t>(i)].ids[0],
              fake_answer(prompt_of(5 + static_cast<size_t>(i), i), static_cast<size_t>(3 + i)));
}

// Where the model finds ids, logits are asked for as soon as any request of the step needs them. What is drawn is the
// same.
TEST_F(EngineTest, TakesIdsAloneWhereTheyAreEnough) {
  using Steps = std::pair<int64_t, int64_t>;  // that gave greedy ids, and drawn ones
  const auto steps = [&](const auto&... change) {
    Request changed = greedy(prompt_of(5, 1), 6);
    (change(changed), ...);
    std::map<int, std::vector<int32_t>> ids_by_logits;
    Steps taken;
    for (const bool gives_ids : {false, true}) {
      Engine engine = make();
      model->gives_ids = gives_ids;
      Collected got, other;
      engine.submit(greedy(prompt_of(10), 6), got.handler());
      if constexpr (sizeof...(change) > 0) engine.submit(changed, other.handler());
      finish(engine);
      EXPECT_EQ(got.ids[0], fake_answer(prompt_of(10), 6));
      if (gives_ids) {
        EXPECT_EQ(other.ids, ids_by_logits);
      }
      ids_by_logits = other.ids;
      taken = {model->greedy_steps, model->sampled_steps};
    }
    return taken;
  };
  EXPECT_EQ(steps(), Steps(6, 0));
  EXPECT_EQ(steps([](Request&) {}), Steps(7, 0));  // the other's prompt comes a step later
  EXPECT_EQ(steps([](Request& r) { r.n = 2; }), Steps(7, 0));
  EXPECT_EQ(steps([](Request& r) { r.sampling.temperature = 3, r.seed = 5; }), Steps(1, 6));
  EXPECT_EQ(steps([](Request& r) { r.sampling.temperature = 3, r.n = 2; }), Steps(1, 5));  // two draws of one row
  EXPECT_EQ(steps([](Request& r) { r.logprobs = 0; }), Steps(1, 0));
  EXPECT_EQ(steps([](Request& r) { r.logit_bias = {{3, 11.f}}; }), Steps(1, 6));
  EXPECT_EQ(steps([](Request& r) { r.penalties.repetition = 1.5f; }), Steps(1, 6));
  EXPECT_EQ(steps([](Request& r) { r.penalties.presence = 1; }), Steps(1, 6));
  EXPECT_EQ(steps([](Request& r) { r.penalties.frequency = 1; }), Steps(1, 6));
  EXPECT_EQ(steps([](Request& r) { r.min_tokens = 2; }), Steps(5, 2));
  EXPECT_EQ(steps([](Request& r) { r.logprobs = 0, r.prompt_logprobs = true; }), Steps(0, 0));
}

TEST_F(EngineTest, FailsARequestOfWhichNoIdIsPossible) {
  for (const bool gives_ids : {false, true}) {
    Engine engine = make();
    model->gives_ids = gives_ids;
    model->nan_after = prompt_of(10).back();
    Collected fails;
    engine.submit(greedy(prompt_of(10), 6), fails.handler());
    finish(engine);
    EXPECT_EQ(fails.finish[0], "error");
    EXPECT_NE(fails.updates.back().error.find("sampling: each of the 50 logits is -inf or NaN"), std::string::npos)
        << fails.updates.back().error;
  }
}

TEST_F(EngineTest, EndsAtTheEndTokenUnlessToldToGoOn) {
  Engine engine = make();
  Collected ends, waits, ignores;
  Request request = greedy(prompt_of(4), 8);
  request.logit_bias = kEndNow;
  engine.submit(request, ends.handler());
  request.min_tokens = 3;
  engine.submit(request, waits.handler());
  request.min_tokens = 0, request.ignore_eos = true;
  engine.submit(request, ignores.handler());
  finish(engine);
  EXPECT_TRUE(ends.ids[0].empty());
  EXPECT_EQ(ends.finish[0], "stop");
  EXPECT_EQ(waits.ids[0], fake_answer(prompt_of(4), 3));
  EXPECT_EQ(ignores.ids[0], std::vector<int32_t>(8, kFakeEnd));
  EXPECT_EQ(ignores.finish[0], "length");
}

TEST_F(EngineTest, EndsBeforeAStopTextThatSpansTokens) {
  Engine engine = make();
  const std::vector<int32_t> answer = fake_answer(prompt_of(4), 8);
  Collected got;
  Request request = greedy(prompt_of(4), 8);
  request.stop = {fmt::format("{}><{}", answer[3], answer[4])};
  engine.submit(request, got.handler());
  finish(engine);
  EXPECT_EQ(got.finish[0], "stop");
  EXPECT_EQ(got.text[0], fmt::format("<{}><{}><{}><", answer[0], answer[1], answer[2]));
}

TEST_F(EngineTest, SaysInWhichCharacterOfTheTextATokenBegins) {
  Vocabulary bytes = fake_vocabulary();
  bytes.text = [next = size_t{0}](int32_t, bool, bool) mutable {
    static constexpr std::string_view kText = "日é€";
    return std::string(1, kText[next++ % kText.size()]);
  };
  Engine engine = EngineMaker::make(std::make_unique<FakeModel>(4, 64), bytes, {});
  Collected got;
  Request request = greedy({1}, 10);
  request.stop = {"€"};  // its tokens begin at the end of the text
  engine.submit(request, got.handler());
  finish(engine);
  EXPECT_EQ(got.text[0], "\uFFFD\uFFFDé");  // the prompt took the first byte
  std::vector<int64_t> offsets;
  for (const Update& update : got.updates) offsets.push_back(update.text_offset);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 1, 2, 2, 3, 3, 3}));
}

TEST_F(EngineTest, ForksChoicesFromOnePrompt) {
  Engine engine = make(100);
  Collected got;
  Request request = {.prompt = prompt_of(30), .max_tokens = 5, .ignore_eos = true, .n = 8, .seed = 3};
  request.sampling.temperature = 5.f;
  engine.submit(request, got.handler());
  finish(engine);
  EXPECT_EQ(got.ids.size(), 8u);
  EXPECT_EQ(model->computed, 30 + 8 * 4);
  EXPECT_GT(std::set(got.ids.begin(), got.ids.end()).size(), 1u);
  Collected again;
  engine.submit(request, again.handler());
  finish(engine);
  EXPECT_EQ(got.ids, again.ids) << "a seed gives the same answers";
}

TEST_F(EngineTest, GoesOnWithTheChoicesThatAreLeftWhenTheFirstOneEnds) {
  Engine engine = make();
  Collected got;
  Request request = {.prompt = prompt_of(9), .max_tokens = 6, .n = 12, .logit_bias = {{kFakeEnd, 10.f}}, .seed = 1};
  engine.submit(request, got.handler());
  finish(engine);
  EXPECT_EQ(got.finish.size(), 12u);
  EXPECT_TRUE(got.last);
}

TEST_F(EngineTest, ComputesACachedPrefixOnce) {
  Engine engine = make();
  Collected first, second;
  engine.submit(greedy(prompt_of(40), 2), first.handler());
  finish(engine);
  const int64_t before = model->computed;
  std::vector<int32_t> longer = prompt_of(40);
  longer.push_back(3);
  engine.submit(greedy(longer, 2), second.handler());
  finish(engine);
  EXPECT_EQ(model->computed - before, 1 + 1);
  EXPECT_EQ(second.updates.back().cached_tokens, 40);
  EXPECT_EQ(second.ids[0], fake_answer(longer, 2));
}

TEST_F(EngineTest, ComputesAnEqualColdPrefixOfRequestsThatArriveTogetherOnce) {
  Engine engine = make(400, {.max_step_rows = 64});
  std::vector<Collected> got(8);
  for (int i = 0; i < 8; ++i) {
    std::vector<int32_t> prompt = prompt_of(80);
    prompt.push_back(i + 1);
    engine.submit(greedy(prompt, 1), got[static_cast<size_t>(i)].handler());
  }
  finish(engine);
  EXPECT_EQ(model->computed, 80 + 8);
  EXPECT_GT(model->shared_nodes, 0);  // the model was told what they share
}

TEST_F(EngineTest, SharesNoPrefixBetweenKeys) {
  Engine engine = make();
  Collected got[2];
  for (int i = 0; i < 2; ++i) {
    Request request = greedy(prompt_of(40), 1);
    request.key = std::string(1, static_cast<char>('a' + i));
    engine.submit(request, got[i].handler());
    finish(engine);
  }
  EXPECT_EQ(model->computed, 80);
}

TEST_F(EngineTest, PreemptsTheYoungestAndAnswersTheSame) {
  Engine engine = make(20);  // 80 tokens
  std::vector<Collected> got(4);
  for (int i = 0; i < 4; ++i) engine.submit(greedy(prompt_of(8, i), 40), got[static_cast<size_t>(i)].handler());
  finish(engine);
  EXPECT_GT(engine.stats().preemptions, 0u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(got[static_cast<size_t>(i)].ids[0], fake_answer(prompt_of(8, i), 40)) << i;
}

TEST_F(EngineTest, RecomputesTheChoicesOfAPreemptedRequest) {
  Engine engine = make(24);
  Collected old, many;
  engine.submit(greedy(prompt_of(10, 1), 60), old.handler());
  Request request = greedy(prompt_of(10, 2), 24);
  request.n = 3;
  engine.submit(request, many.handler());
  finish(engine);
  EXPECT_GT(engine.stats().preemptions, 0u);
  EXPECT_EQ(old.ids[0], fake_answer(prompt_of(10, 1), 60));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(many.ids[i], fake_answer(prompt_of(10, 2), 24)) << i;
}

TEST_F(EngineTest, GivesLogprobsOfAnswerAndPrompt) {
  Engine engine = make(100);
  Collected got;
  Request request = greedy(prompt_of(90), 3);
  request.logprobs = 2, request.prompt_logprobs = true;
  engine.submit(request, got.handler());
  finish(engine);
  ASSERT_EQ(got.updates.at(0).prompt.size(), 89u);
  EXPECT_EQ(got.updates[0].prompt[0].id, prompt_of(90)[1]);
  EXPECT_LE(model->most_rows, 64);
  for (const Update& update : got.updates) {
    ASSERT_TRUE(update.logprob.has_value());
    EXPECT_EQ(update.logprob->id, update.id);
    EXPECT_EQ(update.logprob->top.size(), 2u);
    EXPECT_EQ(update.logprob->top[0].first, update.id);
  }
}

TEST_F(EngineTest, GivesEachChoiceTheLogprobsOfThePrompt) {
  for (const bool ends : {false, true}) {  // with its first token
    Engine engine = make();
    Collected got;
    Request request = greedy(prompt_of(10), 3);
    request.n = 3;
    request.logprobs = 1, request.prompt_logprobs = true;
    if (ends) request.logit_bias = kEndNow;
    engine.submit(request, got.handler());
    finish(engine);
    std::map<int, size_t> tokens;
    for (const Update& update : got.updates) tokens[update.choice] += update.prompt.size();
    EXPECT_EQ(tokens, (std::map<int, size_t>{{0, 9}, {1, 9}, {2, 9}})) << ends;
  }
}

TEST_F(EngineTest, TakesKeysInTurns) {
  Engine engine = make(64, {.max_running = 1});
  std::vector<char> order;
  for (int i = 0; i < 6; ++i) {
    Request request = greedy(prompt_of(4, i), 1);
    request.key = i < 4 ? "a" : "b";
    engine.submit(request, [&order, key = request.key](const Update&) { order.push_back(key[0]); });
  }
  finish(engine);
  EXPECT_EQ(std::string(order.begin(), order.end()), "ababaa");
}

TEST_F(EngineTest, OrdersRequestsOfOneKeyByPriorityAndNoOther) {
  Engine engine = make(64, {.max_running = 1});
  std::string order;
  const auto ask = [&](const std::string& key, char name, int priority) {
    Request request = greedy(prompt_of(4, name), 1);
    request.key = key;
    request.priority = priority;
    engine.submit(request, [&order, name](const Update&) { order += name; });
  };
  ask("modest", '0', -100);
  for (const char name : {'a', 'b', 'c', 'd'}) ask("greedy", name, name == 'c' ? 100 : 90);
  for (const char name : {'1', '2'}) ask("modest", name, 0);
  finish(engine);
  EXPECT_EQ(order, "1c2a0bd");
}

TEST_F(EngineTest, TakesHigherPrioritiesFirst) {
  Engine engine = make(64, {.max_running = 1});
  std::vector<int> order;
  for (const int priority : {0, 5, -3, 5}) {
    Request request = greedy(prompt_of(4, priority), 1);
    request.priority = priority;
    engine.submit(request, [&order, priority](const Update&) { order.push_back(priority); });
  }
  finish(engine);
  EXPECT_EQ(order, (std::vector<int>{5, 5, 0, -3}));
}

TEST_F(EngineTest, WhoWaitsGainsAPriorityEveryTenSeconds) {
  for (const auto& [waited, expected] : {std::pair(9.9, "BA"), std::pair(10., "AB")}) {
    Engine engine = make_watched({.max_running = 1});
    std::string order;
    const auto ask = [&](char name, int priority) {
      Request request = greedy(prompt_of(4, name), 1);
      request.priority = priority;
      engine.submit(request, [&order, name](const Update&) { order += name; });
    };
    const RequestId first = engine.submit(greedy(prompt_of(8), 100), {});
    engine.step();
    ask('A', 0);
    watch.pass(waited);
    ask('B', 1);
    engine.cancel(first);
    finish(engine);
    EXPECT_EQ(order, expected) << "after " << waited << " s";
  }
}

TEST_F(EngineTest, FailsWhatWaitsForTooLong) {
  Engine engine = make_watched({.max_running = 1});
  Collected running, waiting;
  Request request = greedy(prompt_of(8), 20);
  request.max_queue_s = 2;  // the first one has begun before
  engine.submit(request, running.handler());
  engine.step();
  request.prompt = prompt_of(8, 2);
  engine.submit(request, waiting.handler());
  watch.pass(2);
  engine.step();
  EXPECT_FALSE(waiting.last);
  watch.pass(0.001);
  engine.step();
  ASSERT_TRUE(waiting.last);
  EXPECT_EQ(waiting.finish[0], "error");
  EXPECT_EQ(waiting.updates.back().error_code, "queue_timed_out");
  EXPECT_EQ(engine.stats().requests_failed, 1u);
  finish(engine);
  EXPECT_EQ(running.ids[0], fake_answer(prompt_of(8), 20));
}

TEST_F(EngineTest, FailsWhatTakesTooLongInAll) {
  Engine engine = make_watched({});
  Collected slow, other;
  Request request = greedy(prompt_of(8), 100);
  request.max_total_s = 5;
  engine.submit(request, slow.handler());
  engine.submit(greedy(prompt_of(8, 2), 20), other.handler());
  engine.step();
  watch.pass(5);
  engine.step();
  EXPECT_FALSE(slow.last);
  watch.pass(0.001);
  engine.step();
  ASSERT_TRUE(slow.last);
  EXPECT_EQ(slow.finish[0], "error");
  EXPECT_EQ(slow.updates.back().error_code, "timed_out");
  EXPECT_EQ(slow.ids[0], fake_answer(prompt_of(8), 2));
  finish(engine);
  EXPECT_EQ(other.ids[0], fake_answer(prompt_of(8, 2), 20));
  EXPECT_EQ(engine.stats().pages_free + engine.stats().pages_evictable, 64);
}

TEST_F(EngineTest, CancelsRunningAndWaitingRequestsWithinAStep) {
  Engine engine = make(64, {.max_running = 1});
  Collected running, waiting;
  const RequestId first = engine.submit(greedy(prompt_of(8), 100), running.handler());
  const RequestId second = engine.submit(greedy(prompt_of(8, 2), 100), waiting.handler());
  engine.step();
  engine.cancel(first), engine.cancel(second), engine.cancel(12345);
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(running.finish[0], "cancelled");
  EXPECT_EQ(waiting.finish[0], "cancelled");
  EXPECT_EQ(engine.stats().pages_free + engine.stats().pages_evictable, 64);
}

TEST_F(EngineTest, PausesARequest) {
  Engine engine = make();
  Collected got;
  const RequestId id = engine.submit(greedy(prompt_of(8), 10), got.handler());
  engine.step();
  engine.pause(id, true);
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(got.ids[0].size(), 1u);
  engine.pause(id, false);
  finish(engine);
  EXPECT_EQ(got.ids[0], fake_answer(prompt_of(8), 10));
}

TEST_F(EngineTest, RefusesWhatTheQueueDoesNotTake) {
  Engine engine = make(64, {.max_queued = 2, .max_queued_tokens = 100});
  engine.submit(greedy(prompt_of(4), 1), {});
  engine.submit(greedy(prompt_of(4), 1), {});
  try {
    engine.submit(greedy(prompt_of(4), 1), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::queue_full);
  }
  EXPECT_THROW(engine.check_queue(), Error);
  finish(engine);
  engine.check_queue();
  EXPECT_EQ(engine.stats().requests_refused, 1u);
}

TEST_F(EngineTest, CountsWhatIsStillToBeReadAsWaiting) {
  Engine engine = make(64, {.max_queued = 2, .max_queued_tokens = 100});
  auto first = engine.enter_queue(10), second = engine.enter_queue(20);
  EXPECT_EQ(engine.stats().requests_waiting, 2);
  EXPECT_EQ(engine.stats().tokens_waiting, 30);
  EXPECT_THROW(engine.enter_queue(1), Error);
  EXPECT_THROW(engine.submit(greedy(prompt_of(4), 1), {}), Error);
  first.reset();
  engine.submit(greedy(prompt_of(4), 1), {});
  EXPECT_EQ(engine.stats().requests_waiting, 2);
  finish(engine);
  second.reset();
  const auto many = engine.enter_queue(100);
  EXPECT_THROW(engine.check_queue(), Error);
  EXPECT_EQ(engine.stats().requests_refused, 2u);
}

TEST_F(EngineTest, FailsOneRequestAndNoOther) {
  Engine engine = make(64);
  Collected good, bad;
  model->poison = 2;
  engine.submit(greedy(prompt_of(8), 10), good.handler());
  engine.submit(greedy({1, 2, 3}, 10), bad.handler());
  finish(engine);
  EXPECT_EQ(bad.finish[0], "error");
  EXPECT_EQ(bad.updates.back().error_code, "internal");
  EXPECT_TRUE(bad.last);
  EXPECT_EQ(good.ids[0], fake_answer(prompt_of(8), 10));
}

TEST_F(EngineTest, RunsAStepAgainThatFailedOnce) {
  Engine engine = make(64);
  Collected got[2];
  model->fail_at_step = 3;
  for (int i = 0; i < 2; ++i) engine.submit(greedy(prompt_of(8, i), 6), got[i].handler());
  finish(engine);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(got[i].ids[0], fake_answer(prompt_of(8, i), 6));
}

TEST_F(EngineTest, RunsAStepAgainInWhichAWorkerOfTheTeamThrew) {
  struct Throwing : FakeModel {
    using FakeModel::FakeModel;
    WorkerTeam team{3};
    bool thrown = false;
    std::span<float> run(std::span<const Piece> pieces, const SharedPrefixes& prefixes) override {
      if (steps == 3 && !std::exchange(thrown, true))
        team.run([](int worker) {
          if (worker == 2) throw std::runtime_error("a worker");
        });
      return FakeModel::run(pieces, prefixes);
    }
  };
  auto made = std::make_unique<Throwing>(4, 64);
  const Throwing& throwing = *made;
  Engine engine = EngineMaker::make(std::move(made), fake_vocabulary(), {});
  Collected got[2];
  for (int i = 0; i < 2; ++i) engine.submit(greedy(prompt_of(8, i), 6), got[i].handler());
  finish(engine);
  EXPECT_TRUE(throwing.thrown);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(got[i].ids[0], fake_answer(prompt_of(8, i), 6));
}

// Steps cost 10 ms and 1 ms a row.
TEST_F(EngineTest, PromptsLeaveTokensOfOthersTheirTimeAndTakeWhatThatAllows) {
  struct Slow : FakeModel {
    using FakeModel::FakeModel;
    Watch* watch = nullptr;
    std::vector<int64_t> mixed, alone;  // rows of steps
    std::span<float> run(std::span<const Piece> pieces, const SharedPrefixes& prefixes) override {
      int64_t rows = 0;
      for (const Piece& piece : pieces) rows += static_cast<int64_t>(piece.tokens.size());
      if (rows > static_cast<int64_t>(pieces.size())) (pieces.size() > 1 ? mixed : alone).push_back(rows);
      watch->pass(0.01 + 0.001 * static_cast<double>(rows));
      return FakeModel::run(pieces, prefixes);
    }
  };
  const auto play = [&](double target_s) {
    auto made = std::make_unique<Slow>(4, 1200, 2500);
    Slow& slow = *made;
    slow.watch = &watch;
    Engine engine = EngineMaker::make(std::move(made), fake_vocabulary(), {.target_itl_s = target_s}, watch.now());
    Collected decoding, prompt;
    const RequestId long_one = engine.submit(greedy(prompt_of(600), 1800), decoding.handler());
    for (int i = 0; i < 10; ++i) engine.step();
    engine.submit(greedy(prompt_of(1500, 2), 1), prompt.handler());
    while (!prompt.last) engine.step();
    engine.cancel(long_one);
    finish(engine);
    EXPECT_EQ(slow.alone, (std::vector<int64_t>{512, 88})) << "nobody waits for the first prompt";
    return slow.mixed;
  };
  std::vector<int64_t> rows = play(0.05);  // 40 rows
  ASSERT_GT(rows.size(), 20u);
  rows.pop_back();  // what is left of the prompt
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_LE(rows[i], 40) << "step " << i;
    EXPECT_GE(rows[i], i < 5 ? 16 : 30) << "step " << i;
  }
  rows = play(0.005);  // less than a step without rows
  rows.pop_back();
  EXPECT_EQ(rows, std::vector<int64_t>(1500 / 16, 16 + 1));
}

TEST_F(EngineTest, RefusesBadRequestsByField) {
  Engine engine = make(20, {}, false);
  const auto refused = [&](Request request, ErrorCode code, const std::string& field) {
    try {
      engine.submit(std::move(request), {});
      ADD_FAILURE() << field << " was accepted";
    } catch (const FieldError& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_EQ(error.field, field) << error.what();
      EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
    }
  };
  const Request good = greedy(prompt_of(8), 4);
  const auto with = [&](auto change) {
    Request request = good;
    change(request);
    return request;
  };
  const auto invalid = ErrorCode::invalid_argument;
  refused(with([](Request& r) { r.prompt.clear(); }), invalid, "prompt");
  refused(with([](Request& r) { r.prompt[2] = 50; }), ErrorCode::invalid_token, "prompt");
  refused(with([](Request& r) { r.prompt[2] = -1; }), ErrorCode::invalid_token, "prompt");
  refused(with([](Request& r) { r.prompt.resize(128, 1); }), ErrorCode::context_full, "prompt");
  refused(with([](Request& r) { r.max_tokens = -2; }), invalid, "max_tokens");
  refused(with([](Request& r) { r.max_tokens = INT64_MAX; }), ErrorCode::context_full, "max_tokens");
  refused(with([](Request& r) { r.min_tokens = 5; }), invalid, "min_tokens");
  refused(with([](Request& r) { r.n = 65; }), invalid, "n");
  refused(with([](Request& r) { r.n = 0; }), invalid, "n");
  refused(with([](Request& r) { r.n = 64, r.max_tokens = 100; }), ErrorCode::context_full, "n");
  refused(with([](Request& r) { r.sampling.temperature = NAN; }), invalid, "temperature");
  refused(with([](Request& r) { r.sampling.top_k = -1; }), invalid, "top_k");
  refused(with([](Request& r) { r.sampling.top_p = 0; }), invalid, "top_p");
  refused(with([](Request& r) { r.sampling.min_p = 2; }), invalid, "min_p");
  refused(with([](Request& r) { r.penalties.repetition = 0; }), invalid, "repetition_penalty");
  refused(with([](Request& r) { r.penalties.presence = INFINITY; }), invalid, "presence_penalty");
  refused(with([](Request& r) { r.penalties.frequency = NAN; }), invalid, "frequency_penalty");
  refused(with([](Request& r) { r.logit_bias = {{50, 1.f}}; }), ErrorCode::invalid_token, "logit_bias");
  refused(with([](Request& r) { r.logit_bias = {{5, 101.f}}; }), invalid, "logit_bias");
  refused(with([](Request& r) { r.stop = {""}; }), invalid, "stop");
  refused(with([](Request& r) { r.logprobs = 21; }), invalid, "logprobs");
  refused(with([](Request& r) { r.prompt_logprobs = true; }), invalid, "prompt_logprobs");
  refused(with([](Request& r) { r.priority = 101; }), invalid, "priority");
  refused(with([](Request& r) { r.max_queue_s = -1; }), invalid, "max_queue_s");
  refused(with([](Request& r) { r.max_total_s = NAN; }), invalid, "max_total_s");
  refused(with([](Request& r) { r.reproducible = true; }), ErrorCode::unsupported, "reproducible");
  EXPECT_FALSE(engine.step());
}

TEST_F(EngineTest, FailsTheRequestWhoseLogitsAreNoNumbersAndNoOther) {
  Engine engine = make();
  model->nan_after = 2;
  Collected good, bad;
  std::vector<int32_t> prompt = prompt_of(6);
  engine.submit(greedy(prompt, 8), good.handler());
  prompt.back() = 2;
  engine.submit(greedy(prompt, 8), bad.handler());
  finish(engine);
  EXPECT_EQ(good.ids[0], fake_answer(prompt_of(6), 8));
  EXPECT_EQ(bad.finish[0], "error");
  EXPECT_FALSE(bad.updates.back().error_code.empty());
  EXPECT_TRUE(bad.last);
}

TEST_F(EngineTest, DrawsTheSameWhateverTheNumberOfWorkers) {
  std::vector<std::vector<Collected>> got;
  for (const int workers : {1, 3}) {
    WorkerTeam team(workers);
    EngineOptions options;
    options.forward.team = &team;
    Engine engine = make(200, options);
    got.emplace_back(12);
    for (size_t i = 0; i < 12; ++i) {
      Request request{.prompt = prompt_of(5 + i), .max_tokens = 20, .n = i == 7 ? 4 : 1};
      request.sampling = {.temperature = 4.f, .top_p = i % 2 == 0 ? 0.9f : 1.f};
      request.seed = i;
      request.logprobs = i == 3 ? 2 : -1;
      if (i % 3 == 0) request.logit_bias = {{static_cast<int32_t>(i), 12.f}};
      engine.submit(std::move(request), got.back()[i].handler());
    }
    finish(engine);
  }
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(got[0][i].ids, got[1][i].ids) << i;
  EXPECT_NE(got[0][7].ids[0], got[0][7].ids[1]) << "choices draw from generators of their own";
}

TEST_F(EngineTest, OutlivesAListenerThatThrows) {
  Engine engine = make();
  Collected good;
  engine.submit(greedy(prompt_of(5), 4), [](const Update&) { throw std::runtime_error("a listener"); });
  engine.submit(greedy(prompt_of(6), 8), good.handler());
  finish(engine);
  EXPECT_EQ(good.ids[0], fake_answer(prompt_of(6), 8));
}

TEST_F(EngineTest, CutsAndReusesReproduciblePromptsAtFixedMultiplesAndNeverPreemptsThem) {
  auto made = std::make_unique<FakeModel>(4, 130, 500, true);
  model = made.get();
  Engine engine = EngineMaker::make(std::move(made), fake_vocabulary(), {});
  Collected ordinary, first, second;
  engine.submit(greedy(prompt_of(8, 9), 200), ordinary.handler());
  engine.step();
  Request request = greedy(prompt_of(300), 20);
  request.reproducible = true;
  engine.submit(request, first.handler());
  for (int i = 0; i < 5; ++i) engine.step();
  EXPECT_LE(model->most_rows, 128);
  finish(engine);
  EXPECT_EQ(first.ids[0], fake_answer(prompt_of(300), 20));
  EXPECT_EQ(ordinary.ids[0], fake_answer(prompt_of(8, 9), 200));
  engine.submit(request, second.handler());
  finish(engine);
  EXPECT_EQ(second.ids[0], first.ids[0]);
  EXPECT_EQ(second.updates.back().cached_tokens % 128, 0);
}

}  // namespace
}  // namespace weft::serve
