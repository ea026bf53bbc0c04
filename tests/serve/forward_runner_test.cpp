// The engine over real weights: what it answers is what the forward pass answers alone.
#include "serve/forward_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "decode/generate.h"
#include "serve/engine.h"

namespace weft::serve {
namespace {

struct ForwardRunnerTest : ::testing::Test {
  const ModelFile file{WEFT_TEST_DATA "/stories260K.gguf"};
  const Tokenizer tokenizer{file};

  std::vector<int32_t> answer_alone(const std::vector<int32_t>& prompt, int64_t count) const {
    ForwardPass forward(file, {.precision = Precision::exact, .max_tokens = 512});
    decode::Generator generator(forward, tokenizer, {.temperature = 0.f}, {}, 0);
    return generator
        .answer(forward.add_sequence(), prompt,
                {.max_tokens = count,
                 .context = 512,
                 .on_token = [](int32_t, std::string_view) {},
                 .stopped = [] { return false; }})
        .ids;
  }
  Engine engine(EngineOptions options = {}) const {
    options.forward.precision = Precision::exact;
    if (options.kv_tokens == 0) options.kv_tokens = 4096;
    return Engine(file, tokenizer, options);
  }
  // What runs beside what then depends on no machine's speed.
  Engine whose_clock_stands(const EngineOptions& options) const {
    return EngineMaker::make(make_forward_runner(file, options), vocabulary_of(tokenizer), options,
                             [] { return Clock::time_point(); });
  }
};

TEST_F(ForwardRunnerTest, AnswersTogetherWhatEachPromptIsAnsweredAlone) {
  Engine serve = engine();
  const std::vector<std::string> texts{"Once upon a time", "The dog", "Lily and Tom went", "Once upon a time there"};
  std::map<RequestId, std::vector<int32_t>> got;
  std::map<RequestId, std::string> asked;
  for (const std::string& text : texts)
    asked[serve.submit({.prompt = tokenizer.encode(text), .max_tokens = 40, .sampling = {.temperature = 0.f}},
                       [&](const Update& update) {
                         if (update.id >= 0) got[update.request].push_back(update.id);
                       })] = text;
  while (serve.step()) {
  }
  for (const auto& [id, text] : asked) EXPECT_EQ(got[id], answer_alone(tokenizer.encode(text), 40)) << text;
}

TEST_F(ForwardRunnerTest, AnswersTheSameFromACachedPrefix) {
  Engine serve = engine();
  const std::vector<int32_t> prompt =
      tokenizer.encode("Once upon a time, there was a little girl named Lily. She loved to play in the park");
  std::vector<int32_t> got[2];
  int64_t cached = 0;
  for (auto& ids : got) {
    serve.submit({.prompt = prompt, .max_tokens = 30, .sampling = {.temperature = 0.f}}, [&](const Update& update) {
      if (update.id >= 0) ids.push_back(update.id);
      if (update.last) cached = update.cached_tokens;
    });
    while (serve.step()) {
    }
  }
  EXPECT_GE(cached, 16);
  EXPECT_EQ(got[0], got[1]);
  EXPECT_EQ(got[0], answer_alone(prompt, 30));
}

// Same bits of log-probabilities alone, and in a batch that comes and goes, cache cold or warm.
TEST_F(ForwardRunnerTest, GivesReproducibleRequestsTheSameBitsInAnyBatch) {
  std::vector<int32_t> prompt;
  while (prompt.size() < 200) prompt.push_back(static_cast<int32_t>(3 + prompt.size() * 37 % 400));
  const auto ask = [&](Engine& serve, bool company, int workers_before) {
    std::vector<std::pair<int32_t, double>> got;
    for (int i = 0; company && i < 5; ++i)
      serve.submit({.prompt = {prompt.begin() + i, prompt.begin() + 40 + 20 * i}, .max_tokens = 10 + i}, {});
    for (int i = 0; i < workers_before; ++i) serve.step();
    serve.submit({.prompt = prompt,
                  .max_tokens = 24,
                  .sampling = {.temperature = 0.8f},
                  .seed = 7,
                  .logprobs = 0,
                  .reproducible = true},
                 [&](const Update& update) {
                   if (update.logprob) got.emplace_back(update.id, update.logprob->logprob);
                 });
    while (serve.step()) {
    }
    return got;
  };
  WorkerTeam one(1), three(3);
  EngineOptions options{.forward = {.precision = Precision::standard}, .kv_tokens = 4096};
  options.forward.team = &one;
  Engine alone(file, tokenizer, options);
  const auto expected = ask(alone, false, 0);
  ASSERT_EQ(expected.size(), 24u);
  EXPECT_EQ(ask(alone, false, 0), expected) << "with a warm cache";
  EXPECT_EQ(ask(alone, true, 2), expected) << "in company";
  options.forward.team = &three;
  Engine other(file, tokenizer, options);
  EXPECT_EQ(ask(other, true, 1), expected) << "in company, on three workers, with a cold cache";
}

// Prompts that share beginnings, in a pool that evicts, among ordinary requests of which some leave: as each alone.
TEST_F(ForwardRunnerTest, GivesReproducibleRequestsOneAnswerUnderAnyLoad) {
  using Answer = std::vector<std::tuple<int, int32_t, double>>;
  std::mt19937 random(1);
  const auto below = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
  std::vector<Request> requests(32);
  for (Request& request : requests) {
    const int family = below(3), shared = 16 * below(17), own = 1 + below(60);
    for (int i = 0; i < shared + own; ++i)
      request.prompt.push_back(static_cast<int32_t>(3 + (i < shared ? i * 37 + family * 91 : below(400)) % 400));
    request.max_tokens = 1 + below(20);
    request.n = below(5) == 0 ? 3 : 1;
    request.sampling = {.temperature = 0.7f};
    request.seed = random();
    request.logprobs = 0;
    request.reproducible = true;
  }
  const auto collect = [](Answer& answer) {
    return [&answer](const Update& update) {
      if (update.logprob) answer.emplace_back(update.choice, update.id, update.logprob->logprob);
    };
  };
  WorkerTeam two(2), three(3);
  EngineOptions options{.forward = {.precision = Precision::standard}, .kv_tokens = 1024, .max_running = 9};
  options.forward.team = &two;
  std::vector<Answer> alone(requests.size()), together(requests.size());
  {
    Engine serve = whose_clock_stands(options);
    for (size_t i = 0; i < requests.size(); ++i) {
      serve.submit(requests[i], collect(alone[i]));
      while (serve.step()) {
      }
    }
  }
  options.forward.team = &three;
  Engine serve = whose_clock_stands(options);
  for (size_t i = 0; i < requests.size(); ++i) {
    serve.submit(requests[i], collect(together[i]));
    const RequestId other = serve.submit({.prompt = requests[i].prompt, .max_tokens = 60}, {});
    for (int steps = below(8); steps > 0; --steps) serve.step();
    if (below(2) == 0) serve.cancel(other);
  }
  while (serve.step()) {
  }
  EXPECT_GT(serve.stats().preemptions, 0u);
  for (size_t i = 0; i < requests.size(); ++i) {
    std::stable_sort(alone[i].begin(), alone[i].end(),
                     [](const auto& a, const auto& b) { return std::get<0>(a) < std::get<0>(b); });
    std::stable_sort(together[i].begin(), together[i].end(),
                     [](const auto& a, const auto& b) { return std::get<0>(a) < std::get<0>(b); });
    ASSERT_FALSE(alone[i].empty());
    EXPECT_EQ(together[i], alone[i]) << i << ": a prompt of " << requests[i].prompt.size();
  }
}

TEST_F(ForwardRunnerTest, RefusesAPoolSmallerThanOneContext) {
  EXPECT_THROW(engine({.kv_tokens = 100}), Error);
  EXPECT_THROW(engine({.context = 1 << 20}), Error);
  EXPECT_THROW(engine({.max_running = 0}), Error);
}

TEST_F(ForwardRunnerTest, AsksForTheSizeOfAPoolWhereNobodyKnowsTheMemory) {
  try {
    make_forward_runner(file, {.forward = {.device = Device::cuda_host()}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("kv_tokens"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft::serve
