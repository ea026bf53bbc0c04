// The engine: schedule, run, postprocess.
#include "serve/engine.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "base/check.h"
#include "serve/forward_runner.h"
#include "serve/request_checks.h"
#include "serve/sampler.h"
#include "serve/scheduler.h"

namespace weft::serve {
namespace {

constexpr size_t kStepsInView = 120;

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

// An exception as a client sees it.
std::pair<std::string, std::string> failure_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return {std::string(to_string(error.code())), error.what()};
  } catch (const std::bad_alloc&) {
    return {"out_of_memory", "the system gave no more memory"};
  } catch (const std::exception& error) {
    return {"internal", error.what()};
  }
}

}  // namespace

void Histogram::add(double seconds) {
  int bucket = 0;
  while (bucket + 1 < kBuckets && seconds > upper_end(bucket)) ++bucket;
  ++counts[static_cast<size_t>(bucket)];
  ++count;
  sum += seconds;
}

struct Engine::Impl {
  std::unique_ptr<ModelRunner> model;
  Vocabulary vocabulary;
  EngineOptions options;
  ModelRunner::Limits limits;
  PrefixCache cache;
  Scheduler scheduler;
  Sampler sampler;
  States states;  // of the thread that steps, as all above
  EngineStats counts;
  std::deque<double> step_s;

  // What other threads say and see.
  mutable std::mutex mutex;
  std::condition_variable wake;
  States inbox;
  std::vector<RequestId> cancels;
  std::vector<std::pair<RequestId, bool>> pauses;
  bool stopping = false;
  RequestId next_id = 1;
  uint64_t refused = 0;
  int64_t inbox_tokens = 0;
  EngineStats published;
  mutable bool view_wanted = true;
  EngineView published_view;

  Impl(std::unique_ptr<ModelRunner> m, Vocabulary v, const EngineOptions& o)
      : model(std::move(m)),
        vocabulary(std::move(v)),
        options(checked(o)),
        limits(model->limits()),
        cache(*model),
        scheduler(*model, cache,
                  {.max_running = o.max_running, .max_step_rows = o.max_step_rows, .target_itl_s = o.target_itl_s}) {
    publish();
  }
  ~Impl() {
    for (auto& state : states) scheduler.release(*state);
  }

  std::unique_ptr<RequestState> make_state(Request request, OnUpdate on_update) const;
  void check_queue() const;
  bool step();
  void take_messages();
  void end_late_requests(Clock::time_point now);
  void run_pieces(std::span<const ScheduledPiece> pieces);
  std::span<float> run_model(std::span<const ScheduledPiece> pieces);
  void postprocess(const ScheduledPiece& piece, std::span<float> rows);
  void draw(RequestState& state, Choice& choice, std::span<float> row);
  void add_prompt_logprobs(const ScheduledPiece& piece, std::span<float> rows);
  void end_choice(RequestState& state, Choice& choice, Update update);
  void end_request(RequestState& state, const std::string& finish, const std::string& code, const std::string& message);
  void emit(const RequestState& state, Update& update, bool last = false);
  void publish();
};

// ---------------------------------------------------------------- one step

bool Engine::Impl::step() {
  take_messages();
  const auto begin = Clock::now();
  end_late_requests(begin);
  const std::vector<ScheduledPiece> pieces = scheduler.schedule(states, begin);
  for (const ScheduledPiece& piece : pieces)
    if (!std::exchange(piece.state->counted, true))
      counts.queue.add(std::chrono::duration<double>(begin - piece.state->arrived).count());
  StepCost::Work work;
  for (const ScheduledPiece& piece : pieces)
    work.add(piece.count, piece.state->choices[static_cast<size_t>(piece.choice)].computed);
  run_pieces(pieces);
  if (!pieces.empty()) {
    const double seconds = seconds_since(begin);
    scheduler.learn(work, seconds);
    counts.step.add(seconds);
    ++counts.steps;
    step_s.push_back(seconds);
    if (step_s.size() > kStepsInView) step_s.pop_front();
  }
  std::erase_if(states, [](const auto& state) { return state->done(); });
  publish();
  return !pieces.empty();
}

// A step that fails is run again piece by piece, and whose piece fails again has failed.
void Engine::Impl::run_pieces(std::span<const ScheduledPiece> pieces) {
  if (pieces.empty()) return;
  std::span<float> rows;
  bool ran = true;
  try {
    rows = run_model(pieces);
  } catch (const std::exception&) {
    ran = false;
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ScheduledPiece& piece = pieces[i];
    const auto size = static_cast<size_t>(piece.logit_rows * limits.vocab_size);
    try {
      if (!ran && !piece.state->done()) rows = run_model(pieces.subspan(i, 1));
      if (!piece.state->done()) postprocess(piece, rows.first(size));  // else it failed with an earlier piece
    } catch (const std::exception&) {
      const auto [code, message] = failure_of(std::current_exception());
      end_request(*piece.state, "error", code, message);
    }
    if (ran) rows = rows.subspan(size);
  }
}

std::span<float> Engine::Impl::run_model(std::span<const ScheduledPiece> pieces) {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<ModelRunner::Piece> run;
  tokens.reserve(pieces.size());
  for (const ScheduledPiece& piece : pieces) {
    const Choice& choice = piece.state->choices[static_cast<size_t>(piece.choice)];
    tokens.push_back(piece.state->tokens(choice, choice.computed, piece.count));
    run.push_back({choice.sequence, tokens.back(), piece.logit_rows});
  }
  return model->run(run);
}

void Engine::Impl::postprocess(const ScheduledPiece& piece, std::span<float> rows) {
  RequestState& state = *piece.state;
  Choice& choice = state.choices[static_cast<size_t>(piece.choice)];
  if (choice.computed < state.prompt_size())
    counts.prompt_tokens_computed +=
        static_cast<uint64_t>(std::min(piece.count, state.prompt_size() - choice.computed));
  if (state.wants_prompt_logits()) add_prompt_logprobs(piece, rows);
  scheduler.ran(piece);
  if (state.to_compute(choice) > 0) return;
  const std::span<float> row = rows.last(static_cast<size_t>(limits.vocab_size));
  if (!choice.output.empty()) return draw(state, choice, row);
  for (Choice& each : state.choices) draw(state, each, row);  // all begin with the prompt's last row
}

void Engine::Impl::draw(RequestState& state, Choice& choice, std::span<float> row) {
  const Request& request = state.request;
  const bool too_early = !request.ignore_eos && static_cast<int64_t>(choice.output.size()) < request.min_tokens;
  const LogitChanges changes{
      .bias = request.logit_bias,
      .penalties = request.penalties,
      .prompt = request.prompt,
      .output = choice.output,
      .ruled_out = too_early ? std::span<const int32_t>(vocabulary.ends) : std::span<const int32_t>()};
  const int32_t id = sampler.draw(row, changes, request.sampling, choice.random);
  Update update{.request = state.id, .choice = choice.index};
  const auto now = Clock::now();
  if (choice.output.empty()) {
    counts.time_to_first_token.add(std::chrono::duration<double>(now - state.arrived).count());
    if (choice.index == 0) update.prompt = state.prompt_logprobs;
  } else {
    counts.token_gap.add(std::chrono::duration<double>(now - choice.last_token).count());
  }
  choice.last_token = now;
  if (!request.ignore_eos && std::binary_search(vocabulary.ends.begin(), vocabulary.ends.end(), id)) {
    update.text = choice.text.finish();
    update.finish = "stop";
    return end_choice(state, choice, std::move(update));
  }
  if (request.logprobs >= 0) update.logprob = sampler.log_probability(row, id, request.logprobs);
  const bool at_start = choice.output.empty() && vocabulary.text(request.prompt.back(), false).empty();
  update.id = id;
  update.text = choice.text.push(vocabulary.text(id, at_start));
  choice.output.push_back(id);
  ++counts.output_tokens;
  if (choice.text.stopped()) {
    update.finish = "stop";
  } else if (static_cast<int64_t>(choice.output.size()) >= state.max_tokens) {
    update.text += choice.text.finish();
    update.finish = "length";
  }
  if (!update.finish.empty()) return end_choice(state, choice, std::move(update));
  emit(state, update);
}

// Row i of the piece says what follows its token i.
void Engine::Impl::add_prompt_logprobs(const ScheduledPiece& piece, std::span<float> rows) {
  RequestState& state = *piece.state;
  const int64_t first = state.choices[static_cast<size_t>(piece.choice)].computed + 1;
  for (int64_t i = 0; i < piece.count && first + i < state.prompt_size(); ++i) {
    const auto row = rows.subspan(static_cast<size_t>(i * limits.vocab_size), static_cast<size_t>(limits.vocab_size));
    const int32_t id = state.request.prompt[static_cast<size_t>(first + i)];
    state.prompt_logprobs.push_back(sampler.log_probability(row, id, state.request.logprobs));
  }
}

// ---------------------------------------------------------------- ends

void Engine::Impl::end_choice(RequestState& state, Choice& choice, Update update) {
  scheduler.finish(state, choice);
  if (state.done()) {
    scheduler.release(state);
    ++counts.requests_finished;
  }
  emit(state, update, state.done());
}

void Engine::Impl::end_request(RequestState& state, const std::string& finish, const std::string& code,
                               const std::string& message) {
  scheduler.release(state);
  ++(code.empty() ? counts.requests_cancelled : counts.requests_failed);
  std::vector<int> open;
  for (Choice& choice : state.choices)
    if (!std::exchange(choice.done, true)) open.push_back(choice.index);
  for (const int index : open) {
    Update update{.request = state.id, .choice = index, .finish = finish, .error_code = code, .error = message};
    emit(state, update, index == open.back());
  }
}

void Engine::Impl::emit(const RequestState& state, Update& update, bool last) {
  if ((update.last = last)) {
    update.prompt_tokens = state.prompt_size();
    update.cached_tokens = state.reused;
    for (const Choice& choice : state.choices) update.output_tokens += static_cast<int64_t>(choice.output.size());
  }
  if (state.on_update) state.on_update(update);
}

// ---------------------------------------------------------------- other threads

void Engine::Impl::take_messages() {
  States arrived;
  std::vector<RequestId> cancelled;
  std::vector<std::pair<RequestId, bool>> paused;
  {
    const std::lock_guard lock(mutex);
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
    if (RequestState* state = find(id); state != nullptr && !state->done()) end_request(*state, "cancelled", "", "");
  std::erase_if(states, [](const auto& state) { return state->done(); });
}

void Engine::Impl::end_late_requests(Clock::time_point now) {
  for (const auto& state : states) {
    const double age = std::chrono::duration<double>(now - state->arrived).count();
    const Request& request = state->request;
    const bool waits = !state->began && request.max_queue_s > 0 && age > request.max_queue_s;
    if (waits || (request.max_total_s > 0 && age > request.max_total_s))
      end_request(*state, "error", "timed_out",
                  fmt::format("the request {} for {:.1f} s, longer than this server allows",
                              waits ? "waited" : "was there", age));
  }
  std::erase_if(states, [](const auto& state) { return state->done(); });
}

void Engine::Impl::check_queue() const {
  const auto waiting = published.requests_waiting + static_cast<int64_t>(inbox.size());
  check(waiting < options.max_queued, ErrorCode::queue_full,
        "{} requests wait, as many as the queue takes: try again later, or raise max_queued", waiting);
  const int64_t tokens = published.tokens_waiting + inbox_tokens;
  check(tokens < options.max_queued_tokens, ErrorCode::queue_full,
        "requests that wait have {} prompt tokens, as many as the queue takes: try again later, or raise "
        "max_queued_tokens",
        tokens);
}

std::unique_ptr<RequestState> Engine::Impl::make_state(Request request, OnUpdate on_update) const {
  check_request(request, limits, options.max_running);
  auto state = std::make_unique<RequestState>();
  for (int i = 0; i < request.n; ++i)
    state->choices.push_back({.index = i, .random = generator_of(request.seed, i), .text = AnswerText(request.stop)});
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  state->max_tokens = limits.context - prompt;
  if (request.max_tokens > 0) {
    state->max_tokens = request.max_tokens;
  } else {
    // As long as all choices fit the pool together.
    const int64_t shared = prompt / limits.page_size;
    const int64_t own = (limits.num_pages - shared) / request.n * limits.page_size;
    state->max_tokens = std::clamp<int64_t>(own - prompt % limits.page_size, 1, state->max_tokens);
  }
  state->request = std::move(request);
  state->on_update = std::move(on_update);
  state->arrived = Clock::now();
  scheduler.check_fits(*state);
  return state;
}

void Engine::Impl::publish() {
  counts.requests_running = counts.requests_waiting = counts.tokens_waiting = counts.cached_tokens = 0;
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
  counts.requests_refused = refused;
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

Engine EngineMaker::make(std::unique_ptr<ModelRunner> model, Vocabulary vocabulary, const EngineOptions& options) {
  return Engine(std::make_unique<Engine::Impl>(std::move(model), std::move(vocabulary), options));
}

Vocabulary vocabulary_of(const Tokenizer& tokenizer) {
  Vocabulary vocabulary;
  vocabulary.text = [&tokenizer](int32_t id, bool at_start) {
    return at_start ? tokenizer.decode({&id, 1}) : tokenizer.piece(id);
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
  std::unique_ptr<RequestState> state = impl().make_state(std::move(request), std::move(on_update));
  const std::lock_guard lock(impl().mutex);
  try {
    impl().check_queue();
  } catch (const Error&) {
    ++impl().refused;
    throw;
  }
  const RequestId id = state->id = impl().next_id++;
  impl().inbox_tokens += state->prompt_size();
  impl().inbox.push_back(std::move(state));
  impl().wake.notify_one();
  return id;
}

void Engine::check_queue() const {
  const std::lock_guard lock(impl().mutex);
  impl().check_queue();
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
    const bool worked = engine.step();
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

EngineStats Engine::stats() const {
  const std::lock_guard lock(impl().mutex);
  return impl().published;
}

EngineView Engine::view() const {
  const std::lock_guard lock(impl().mutex);
  impl().view_wanted = true;
  impl().wake.notify_one();
  return impl().published_view;
}

}  // namespace weft::serve
