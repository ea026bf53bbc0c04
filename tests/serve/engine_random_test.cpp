// The engine over a model of fifty lines, whatever comes: pages add up after every step, everything ends, every answer
// is the one that a request has alone, and who fails is who computes the token that no step survives.
#include <fmt/format.h>
#include <rapidcheck.h>

#include "serve/engine.h"
#include "tests/serve/fake_model.h"
#include "weft/error.h"

namespace weft::serve {
namespace {

using testing::Collected;
using testing::fake_answer;
using testing::fake_vocabulary;
using testing::FakeModel;

constexpr int kPageSize = 4;

struct Asked {
  Request request;
  Collected got;
  RequestId id = 0;
  bool cancelled = false, paused = false;
};

Request random_request() {
  Request request;
  // Few beginnings, so that prompts share them.
  const int family = *rc::gen::inRange(0, 3);
  // Some are long enough for what reproducible ones reuse.
  const bool long_one = *rc::gen::inRange(0, 4) == 0;
  request.prompt = testing::prompt_of(*rc::gen::inRange<size_t>(long_one ? 120 : 1, long_one ? 210 : 60), family);
  if (*rc::gen::arbitrary<bool>()) request.prompt.back() = *rc::gen::inRange(1, testing::kFakeVocab);
  request.max_tokens = *rc::gen::inRange<int64_t>(1, 40);
  request.n = *rc::gen::weightedElement<int>({{6, 1}, {1, 2}, {1, 5}});
  request.priority = *rc::gen::inRange(-2, 3);
  request.key = std::string(1, *rc::gen::element('a', 'b'));
  request.sampling.temperature = 0.f;
  request.reproducible = *rc::gen::weightedElement<bool>({{4, false}, {1, true}});
  if (*rc::gen::inRange(0, 8) == 0) request.logprobs = 1, request.prompt_logprobs = true;
  if (*rc::gen::inRange(0, 4) == 0) {  // a token of the answer, or the border of two
    const std::vector<int32_t> answer = fake_answer(request.prompt, static_cast<size_t>(request.max_tokens) + 1);
    const auto at = static_cast<size_t>(*rc::gen::inRange<int64_t>(0, request.max_tokens));
    request.stop = {*rc::gen::arbitrary<bool>() ? fmt::format("<{}>", answer[at])
                                                : fmt::format("{}><{}", answer[at], answer[at + 1])};
  }
  return request;
}

struct Answer {
  std::vector<int32_t> ids = {};
  std::string text = {}, finish = "error";
};

// What every choice of a request answers where it is left alone.
Answer answer_of(const Request& request, int32_t poison) {
  Answer answer;
  if (std::count(request.prompt.begin(), request.prompt.end(), poison) > 0) return answer;
  for (const int32_t id : fake_answer(request.prompt, static_cast<size_t>(request.max_tokens))) {
    answer.ids.push_back(id);
    answer.text += fmt::format("<{}>", id);
    const size_t end = request.stop.empty() ? std::string::npos : answer.text.find(request.stop[0]);
    if (end != std::string::npos) {
      answer.text.resize(end);
      answer.finish = "stop";
      return answer;
    }
    if (id == poison) break;
  }
  if (static_cast<int64_t>(answer.ids.size()) == request.max_tokens) answer.finish = "length";
  return answer;
}

void expect_right(const Asked& asked, int32_t poison) {
  RC_ASSERT(asked.got.last);
  const Answer expected = answer_of(asked.request, poison);
  for (const auto& [choice, finish] : asked.got.finish) {
    const auto ids = asked.got.ids.contains(choice) ? asked.got.ids.at(choice) : std::vector<int32_t>();
    const std::string& text = asked.got.text.at(choice);
    RC_ASSERT(ids.size() <= expected.ids.size() && std::equal(ids.begin(), ids.end(), expected.ids.begin()));
    RC_ASSERT(expected.text.starts_with(text));
    if (asked.cancelled && finish == "cancelled") continue;
    RC_ASSERT(finish == expected.finish);
    // All choices of a request fail together.
    if (finish != "error") RC_ASSERT(ids == expected.ids && text == expected.text);
  }
  RC_ASSERT(asked.got.finish.size() == static_cast<size_t>(asked.request.n));
}

TEST(EngineRandom, PagesAddUpAndEverythingEndsWhateverComes) {
  EXPECT_TRUE(rc::check("random load", [] {
    const int64_t pages = *rc::gen::inRange<int64_t>(64, 160);
    auto made = std::make_unique<FakeModel>(kPageSize, pages, 250, true);
    FakeModel& model = *made;
    if (*rc::gen::inRange(0, 3) == 0)
      model.poison = *rc::gen::inRange(1, testing::kFakeVocab);
    else
      model.fail_at_step = *rc::gen::inRange<int64_t>(0, 40);  // once, for want of memory: it runs again
    const EngineOptions options{.max_running = *rc::gen::inRange(5, 12),
                                .max_step_rows = *rc::gen::inRange<int64_t>(128, 200)};
    Engine engine = EngineMaker::make(std::move(made), fake_vocabulary(), options);
    std::vector<std::unique_ptr<Asked>> all;
    const auto pages_add_up = [&] {
      const EngineStats stats = engine.stats();
      RC_ASSERT(stats.pages_free == model.num_free_pages());
      RC_ASSERT(stats.pages_free + static_cast<int64_t>(model.used_pages().size()) == pages);
      RC_ASSERT(stats.pages_cached == static_cast<int64_t>(model.held_pages().size()));
      RC_ASSERT(stats.pages_evictable >= 0 && stats.pages_evictable <= stats.pages_cached);
      if (stats.requests_running == 0)
        RC_ASSERT(model.num_sequences() == 0 && stats.pages_evictable == stats.pages_cached);
    };
    const int events = *rc::gen::inRange(1, 60);
    for (int i = 0; i < events; ++i) {
      const int what = *rc::gen::inRange(0, 10);
      if (what < 4) {
        auto asked = std::make_unique<Asked>();
        asked->request = random_request();
        try {
          asked->id = engine.submit(asked->request, asked->got.handler());
          all.push_back(std::move(asked));
        } catch (const Error& error) {
          RC_ASSERT(error.code() == ErrorCode::context_full);
        }
      } else if (what == 4 && !all.empty()) {
        Asked& asked = *all[*rc::gen::inRange<size_t>(0, all.size())];
        engine.cancel(asked.id);
        asked.cancelled = true;
      } else if (what == 5 && !all.empty()) {
        Asked& asked = *all[*rc::gen::inRange<size_t>(0, all.size())];
        engine.pause(asked.id, asked.paused = !asked.paused);
      } else {
        engine.step();
        pages_add_up();
      }
    }
    for (const auto& asked : all) engine.pause(asked->id, false);
    for (int64_t left = 20000; engine.step(); pages_add_up()) RC_ASSERT(left-- > 0);
    pages_add_up();
    RC_ASSERT(engine.stats().requests_running == 0 && engine.stats().requests_waiting == 0);
    for (const auto& asked : all) expect_right(*asked, model.poison);
  }));
}

}  // namespace
}  // namespace weft::serve
