// What other threads say to an engine and see of it.
#include <algorithm>

#include "base/check.h"
#include "serve/engine_impl.h"
#include "serve/forward_runner.h"
#include "serve/request_checks.h"

namespace weft::serve {
namespace {

// The queue has no room.
struct QueueFull : Error, OfLimit {
  QueueFull(Limit which, const std::string& message) : Error(ErrorCode::queue_full, message), OfLimit{which} {}
};

}  // namespace

EngineOptions checked(const EngineOptions& options) {
  check(options.max_running >= 1 && options.max_running <= 512, ErrorCode::invalid_argument,
        "max_running = {}; allowed are 1 to 512", options.max_running);
  check(options.max_step_rows >= options.max_running && options.max_step_rows <= 8192, ErrorCode::invalid_argument,
        "max_step_rows = {}; allowed are max_running, which is {}, to 8192", options.max_step_rows,
        options.max_running);
  check(options.target_itl_s > 0 && options.target_itl_s <= 60, ErrorCode::invalid_argument,
        "target_itl_s = {}; allowed are seconds above 0 up to 60", options.target_itl_s);
  check(options.max_queued >= 0 && options.max_queued_tokens >= 0, ErrorCode::invalid_argument,
        "max_queued = {}, max_queued_tokens = {}; allowed are 0 and more", options.max_queued,
        options.max_queued_tokens);
  return options;
}

void Histogram::add(double seconds) {
  int bucket = 0;
  while (bucket + 1 < kBuckets && seconds > upper_end(bucket)) ++bucket;
  ++counts[static_cast<size_t>(bucket)];
  ++count;
  sum += seconds;
}

// ---------------------------------------------------------------- other threads

void Engine::Impl::take_messages() {
  States arrived;
  std::vector<RequestId> cancelled;
  std::vector<std::pair<RequestId, bool>> paused;
  {
    const std::lock_guard lock(mutex);
    states.reserve(states.size() + inbox.size());  // what is taken out is not lost
    arrived.swap(inbox);
    cancelled.swap(cancels);
    paused.swap(pauses);
    inbox_tokens = 0;
    for (const auto& state : arrived) {
      ++published.requests_waiting;
      published.tokens_waiting += state->prompt_size();
    }
  }
  for (auto& state : arrived) {
    counts.prompt_tokens += static_cast<uint64_t>(state->prompt_size());
    states.push_back(std::move(state));
  }
  const auto find = [&](RequestId id) -> RequestState* {
    const auto found = std::lower_bound(states.begin(), states.end(), id,
                                        [](const auto& state, RequestId wanted) { return state->id < wanted; });
    return found != states.end() && (*found)->id == id ? found->get() : nullptr;
  };
  for (const auto& [id, pause] : paused)
    if (RequestState* state = find(id)) state->paused = pause;
  for (const RequestId id : cancelled)
    if (RequestState* state = find(id)) state->cancelled = true;
}

void Engine::Impl::end_early(Clock::time_point at) {
  for (const auto& state : states) {
    if (state->done()) continue;
    if (state->cancelled) {
      end_request(*state, "cancelled", "", "");
      continue;
    }
    const double age = std::chrono::duration<double>(at - state->arrived).count();
    const Request& request = state->request;
    const bool waits = !state->began && request.max_queue_s > 0 && age > request.max_queue_s;
    if (!waits && (request.max_total_s <= 0 || age <= request.max_total_s)) continue;
    end_request(*state, "error", waits ? "queue_timed_out" : "timed_out",
                fmt::format("the request {} for {:.1f} s, longer than this server allows",
                            waits ? "waited" : "was there", age));
    limits_met.add(waits ? Limit::queue_time : Limit::request_time);
  }
  std::erase_if(states, [](const auto& state) { return state->done(); });
}

void Engine::Impl::check_queue() const {
  const int64_t waiting = requests_waiting();
  if (waiting >= options.max_queued)
    throw QueueFull(
        Limit::max_queued,
        fmt::format("{} requests wait, as many as the queue takes: try again later, or raise max_queued", waiting));
  const int64_t tokens = tokens_waiting();
  if (tokens >= options.max_queued_tokens)
    throw QueueFull(Limit::max_queued_tokens,
                    fmt::format("requests that wait have {} prompt tokens, as many as the queue takes: try again "
                                "later, or raise max_queued_tokens",
                                tokens));
}

void Engine::Impl::check_and_count() {
  try {
    counted(limits_met, [&] { check_queue(); });
  } catch (const Error&) {
    ++refused;
    throw;
  }
}

std::unique_ptr<RequestState> Engine::Impl::make_state(Request request, OnUpdate on_update) const {
  check_request(request, limits, options.max_running);
  auto state = std::make_unique<RequestState>();
  for (int i = 0; i < request.n; ++i)
    state->choices.push_back({.index = i, .random = generator_of(request.seed, i), .text = AnswerText(request.stop)});
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  state->max_tokens = limits.context - prompt;
  if (request.max_tokens >= 0) {
    state->max_tokens = request.max_tokens;
  } else {
    // As long as all choices fit the pool together.
    const int64_t shared = prompt / limits.page_size;
    const int64_t own = (limits.num_pages - shared) / request.n * limits.page_size;
    state->max_tokens = std::clamp<int64_t>(own - prompt % limits.page_size, 1, state->max_tokens);
  }
  state->request = std::move(request);
  state->on_update = std::move(on_update);
  state->arrived = now();
  scheduler.check_fits(*state);
  return state;
}

void Engine::Impl::publish() {
  counts.requests_running = counts.requests_waiting = counts.tokens_waiting = 0;
  counts.pages = limits.num_pages;
  counts.pages_free = model->num_free_pages();
  counts.pages_cached = cache.held_pages();
  counts.pages_evictable = cache.evictable_pages();
  counts.preemptions = scheduler.preemptions();
  for (const auto& state : states) {
    ++(state->running ? counts.requests_running : counts.requests_waiting);
    if (!state->running) counts.tokens_waiting += state->prompt_size();
  }
  const std::lock_guard lock(mutex);
  published = counts;
  if (!std::exchange(view_wanted, false)) return;
  published_view = {.requests = {}, .prefixes = cache.describe(), .step_s = {step_s.begin(), step_s.end()}};
  for (const auto& state : states) {
    RunningRequest shown{state->id,
                         state->running,
                         state->prompt_size(),
                         0,
                         0,
                         static_cast<int>(state->choices.size()),
                         seconds_since(state->arrived)};
    for (const Choice& choice : state->choices) {
      shown.computed_tokens = std::max(shown.computed_tokens, choice.computed);
      shown.output_tokens += static_cast<int64_t>(choice.output.size());
    }
    published_view.requests.push_back(shown);
  }
}

// ---------------------------------------------------------------- the public face

Engine EngineMaker::make(std::unique_ptr<ModelRunner> model, Vocabulary vocabulary, const EngineOptions& options,
                         Now now) {
  return Engine(std::make_unique<Engine::Impl>(std::move(model), std::move(vocabulary), options, std::move(now)));
}

LimitsMet& EngineMaker::limits_met(Engine& engine) { return engine.impl().limits_met; }

Vocabulary vocabulary_of(const Tokenizer& tokenizer) {
  Vocabulary vocabulary;
  vocabulary.text = [&tokenizer](int32_t id, bool at_start, bool special) {
    return at_start ? tokenizer.decode({&id, 1}, !special) : tokenizer.piece(id, !special);
  };
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.is_end(id)) vocabulary.ends.push_back(id);
  return vocabulary;
}

Engine::Engine(const ModelFile& file, const Tokenizer& tokenizer, const EngineOptions& options)
    : Engine(std::make_unique<Impl>(make_forward_runner(file, checked(options)), vocabulary_of(tokenizer), options)) {}
Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::Impl& Engine::impl() const { return held(impl_, "engine", "Engine(file, tokenizer, options)"); }

RequestId Engine::submit(Request request, OnUpdate on_update) {
  std::unique_ptr<RequestState> state =
      counted(impl().limits_met, [&] { return impl().make_state(std::move(request), std::move(on_update)); });
  const std::lock_guard lock(impl().mutex);
  impl().check_and_count();
  const RequestId id = state->id = impl().next_id++;
  const int64_t tokens = state->prompt_size();
  impl().inbox.push_back(std::move(state));
  impl().inbox_tokens += tokens;
  impl().wake.notify_one();
  return id;
}

void Engine::check_queue() const {
  const std::lock_guard lock(impl().mutex);
  impl().check_queue();
}

std::shared_ptr<void> Engine::enter_queue(int64_t tokens) {
  const auto count = [tokens](Impl* engine, int sign) {
    engine->entering += sign;
    engine->entering_tokens += sign * tokens;
  };
  {
    const std::lock_guard lock(impl().mutex);
    impl().check_and_count();
    count(&impl(), 1);
  }
  return {&impl(), [count](Impl* engine) {
            const std::lock_guard lock(engine->mutex);
            count(engine, -1);
          }};
}

void Engine::cancel(RequestId request) {
  const std::lock_guard lock(impl().mutex);
  impl().cancels.push_back(request);
  impl().wake.notify_one();
}

void Engine::pause(RequestId request, bool paused) {
  const std::lock_guard lock(impl().mutex);
  impl().pauses.emplace_back(request, paused);
  impl().wake.notify_one();
}

bool Engine::step() { return impl().step(); }

void Engine::run() {
  Impl& engine = impl();
  for (;;) {
    const bool worked = engine.step() || engine.model->use_idle_time();
    std::unique_lock lock(engine.mutex);
    if (!worked)
      engine.wake.wait(lock, [&] {
        return engine.stopping || engine.view_wanted || !engine.inbox.empty() || !engine.cancels.empty() ||
               !engine.pauses.empty();
      });
    if (engine.stopping) return;
  }
}

void Engine::stop() {
  const std::lock_guard lock(impl().mutex);
  impl().stopping = true;
  impl().wake.notify_one();
}

int64_t Engine::context() const { return impl().limits.context; }
const std::string& Engine::step_form() const { return impl().limits.step_form; }

EngineStats Engine::stats() const {
  const std::lock_guard lock(impl().mutex);
  EngineStats stats = impl().published;
  stats.requests_refused = impl().refused;
  stats.requests_waiting = impl().requests_waiting();
  stats.tokens_waiting = impl().tokens_waiting();
  return stats;
}

EngineView Engine::view() const {
  const std::lock_guard lock(impl().mutex);
  impl().view_wanted = true;
  impl().wake.notify_one();
  return impl().published_view;
}

}  // namespace weft::serve
