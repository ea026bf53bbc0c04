// The engine: schedule, run, postprocess.
#include <algorithm>
#include <thread>

#include "base/check.h"
#include "serve/engine_impl.h"

namespace weft::serve {
namespace {

constexpr size_t kStepsInView = 120;
constexpr std::chrono::milliseconds kPauseAfterFailure{1};

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

// ---------------------------------------------------------------- one step

bool Engine::Impl::step() {
  try {
    const bool worked = one_step();
    failed_steps = 0;
    return worked;
  } catch (const std::exception&) {
    fail_step(std::current_exception());
    return true;
  }
}

// What throws outside of a piece loses nothing: the next step takes it up again. Where that fails too, the youngest request
// goes, so that the others go on in the end.
void Engine::Impl::fail_step(const std::exception_ptr& thrown) {
  std::this_thread::sleep_for(kPauseAfterFailure);
  if (++failed_steps < 2) return;
  const auto is_running = [](const auto& state) { return state->running; };
  auto youngest = std::find_if(states.rbegin(), states.rend(), is_running);
  if (youngest == states.rend()) youngest = states.rbegin();
  if (youngest == states.rend()) return;
  try {
    const auto [code, message] = failure_of(thrown);
    end_request(**youngest, "error", code, message);
  } catch (const std::exception&) {
  }
}

bool Engine::Impl::one_step() {
  take_messages();
  const auto begin = Clock::now();
  end_early(begin);
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
  std::vector<PrefixCache::Node*> nodes;
  tokens.reserve(pieces.size());
  for (const ScheduledPiece& piece : pieces) {
    const Choice& choice = piece.state->choices[static_cast<size_t>(piece.choice)];
    tokens.push_back(piece.state->tokens(choice, choice.computed, piece.count));
    run.push_back({choice.sequence, tokens.back(), piece.logit_rows, piece.state->request.reproducible});
    // A request that was preempted may go on from one choice's output, which the others don't share.
    nodes.push_back(cache.within(piece.state->held.node, piece.state->prompt_size()));
  }
  return model->run(run, cache.shared_by(nodes).view());
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
  std::vector<Update> ends;  // all memory first: a request has ended with its updates, or goes on
  for (const Choice& choice : state.choices)
    if (!choice.done)
      ends.push_back(
          {.request = state.id, .choice = choice.index, .finish = finish, .error_code = code, .error = message});
  scheduler.release(state);
  ++(code.empty() ? counts.requests_cancelled : counts.requests_failed);
  for (Choice& choice : state.choices) choice.done = true;
  for (Update& end : ends) emit(state, end, &end == &ends.back());
}

void Engine::Impl::emit(const RequestState& state, Update& update, bool last) {
  if ((update.last = last)) {
    update.prompt_tokens = state.prompt_size();
    update.cached_tokens = state.reused;
    for (const Choice& choice : state.choices) update.output_tokens += static_cast<int64_t>(choice.output.size());
  }
  try {
    if (state.on_update) state.on_update(update);
  } catch (const std::exception&) {  // it must not throw; one that does harms nobody else
  }
}

}  // namespace weft::serve
