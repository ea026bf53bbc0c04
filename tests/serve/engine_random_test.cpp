// The engine over a model of fifty lines, whatever comes: pages add up after every step, everything ends, every answer is
// the one that a request has alone.
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
  return request;
}

void expect_right(const Asked& asked) {
  RC_ASSERT(asked.got.last);
  for (const auto& [choice, finish] : asked.got.finish) {
    const auto ids = asked.got.ids.contains(choice) ? asked.got.ids.at(choice) : std::vector<int32_t>();
    RC_ASSERT(ids == fake_answer(asked.request.prompt, ids.size()));
    RC_ASSERT(finish == (asked.cancelled && finish == "cancelled" ? "cancelled" : "length"));
    if (finish == "length") RC_ASSERT(static_cast<int64_t>(ids.size()) == asked.request.max_tokens);
  }
  RC_ASSERT(asked.got.finish.size() == static_cast<size_t>(asked.request.n));
}

TEST(EngineRandom, PagesAddUpAndEverythingEndsWhateverComes) {
  EXPECT_TRUE(rc::check("random load", [] {
    const int64_t pages = *rc::gen::inRange<int64_t>(64, 160);
    auto made = std::make_unique<FakeModel>(kPageSize, pages, 250, true);
    FakeModel& model = *made;
    const EngineOptions options{.max_running = *rc::gen::inRange(5, 12),
                                .max_step_rows = *rc::gen::inRange<int64_t>(128, 200)};
    Engine engine = EngineMaker::make(std::move(made), fake_vocabulary(), options);
    std::vector<std::unique_ptr<Asked>> all;
    const auto pages_add_up = [&] {
      const EngineStats stats = engine.stats();
      RC_ASSERT(stats.pages_free == model.num_free_pages());
      RC_ASSERT(stats.pages_evictable >= 0 && stats.pages_evictable <= stats.pages_cached);
      if (stats.requests_running == 0) RC_ASSERT(stats.pages_free + stats.pages_cached == pages);
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
    for (const auto& asked : all) expect_right(*asked);
  }));
}

}  // namespace
}  // namespace weft::serve
