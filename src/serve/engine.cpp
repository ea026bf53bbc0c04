// The engine: schedule, run, postprocess.
#include <algorithm>
#include <atomic>
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

// Of the end, which a request may rule out at first.
bool is_too_early(const Draw& draw) {
  const Request& request = draw.piece->state->request;
  return !request.ignore_eos && static_cast<int64_t>(draw.choice->output.size()) < request.min_tokens;
}

// Of a request that asks for no log-probabilities a row's id is enough.
bool needs_logits(std::span<const ScheduledPiece> pieces, std::span<const Draw> draws) {
  const auto wants_prompt = [](const ScheduledPiece& piece) { return piece.state->wants_prompt_logits(); };
  const auto wants_logprobs = [](const Draw& draw) { return draw.piece->state->request.logprobs >= 0; };
  return std::ranges::any_of(pieces, wants_prompt) || std::ranges::any_of(draws, wants_logprobs);
}
// Whether the id of the greatest logit is the one that is drawn.
bool takes_greatest(const Draw& draw) {
  const Request& request = draw.piece->state->request;
  const Penalties& penalties = request.penalties;
  return request.sampling.temperature == 0.f && request.logit_bias.empty() && penalties.repetition == 1.f &&
         penalties.presence == 0.f && penalties.frequency == 0.f && !is_too_early(draw);
}
// While the request and its choice live. `ends`: tokens that end an answer.
TokenDraw how_to(const Draw& draw, std::span<const int32_t> ends) {
  const Request& request = draw.piece->state->request;
  return {.params = request.sampling,
          .random = draw.choice->random,
          .penalties = request.penalties,
          .prompt = request.prompt,
          .output = draw.choice->output,
          .bias = request.logit_bias,
          .ruled_out = is_too_early(draw) ? ends : std::span<const int32_t>()};
}
// Several choices may draw from their prompt's last row.
bool draws_once_a_row(std::span<const Draw> draws, int64_t rows) {
  for (size_t i = 0; i < draws.size(); ++i)
    if (draws[i].row != static_cast<int64_t>(i)) return false;
  return static_cast<int64_t>(draws.size()) == rows;
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

// What throws outside of a piece loses nothing: the next step takes it up again. Where that fails too, the youngest
// request goes, so that the others go on in the end.
void Engine::Impl::fail_step(const std::exception_ptr& thrown) {
  std::this_thread::sleep_for(kPauseAfterFailure);
  if (++failed_steps < 2) return;
  const auto is_running = [](const auto& state) { return state->running; };
  auto youngest = std::find_if(states.rbegin(), states.rend(), is_running);
  if (youngest == states.rend()) youngest = states.rbegin();
  if (youngest == states.rend()) return;
  try {
    fail(**youngest, thrown);
  } catch (const std::exception&) {
  }
}

bool Engine::Impl::one_step() {
  take_messages();
  const auto begin = now();
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

void Engine::Impl::run_pieces(std::span<const ScheduledPiece> pieces) {
  if (pieces.empty()) return;
  std::vector<Draw> draws = draws_of(pieces);
  StepRows rows;
  try {
    rows = run_model(pieces, draws);
  } catch (const std::exception&) {
    return run_apart(pieces);
  }
  answer(pieces, rows, draws);
}

// A step that failed is run again piece by piece, and whose piece fails again has failed.
void Engine::Impl::run_apart(std::span<const ScheduledPiece> pieces) {
  for (; !pieces.empty(); pieces = pieces.subspan(1)) {
    const auto alone = pieces.first(1);
    if (alone[0].state->done()) continue;  // it failed with an earlier piece
    try {
      std::vector<Draw> draws = draws_of(alone);
      answer(alone, run_model(alone, draws), draws);
    } catch (const std::exception&) {
      fail(*alone[0].state, std::current_exception());
    }
  }
}

void Engine::Impl::answer(std::span<const ScheduledPiece> pieces, const StepRows& rows, std::span<Draw> draws) {
  draw_all(rows, draws);
  std::span<const float> logits = rows.logits;
  for (const ScheduledPiece& piece : pieces) {
    const size_t size = rows.ids.empty() ? static_cast<size_t>(piece.logit_rows * limits.vocab_size) : 0;
    const auto other = std::find_if(draws.begin(), draws.end(), [&](const Draw& d) { return d.piece != &piece; });
    const auto drawn = draws.first(static_cast<size_t>(other - draws.begin()));
    try {
      if (!piece.state->done()) postprocess(piece, logits.first(size), drawn);  // else it failed with an earlier piece
    } catch (const std::exception&) {
      fail(*piece.state, std::current_exception());
    }
    logits = logits.subspan(size);
    draws = draws.subspan(drawn.size());
  }
}

StepRows Engine::Impl::run_model(std::span<const ScheduledPiece> pieces, std::span<const Draw> draws) {
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
  const auto shared = cache.shared_by(nodes);
  if (model->finds_ids() && !needs_logits(pieces, draws)) {
    if (std::ranges::all_of(draws, takes_greatest)) return {.ids = model->run_greedy(run, shared.view())};
    int64_t rows = 0;
    for (const ScheduledPiece& piece : pieces) rows += piece.logit_rows;
    if (draws_once_a_row(draws, rows)) {
      std::vector<TokenDraw> how;
      for (const Draw& draw : draws) how.push_back(how_to(draw, vocabulary.ends));
      return {.ids = model->run_sampled(run, how, shared.view())};
    }
  }
  return {.logits = model->run(run, shared.view())};
}

// ---------------------------------------------------------------- draws

// Of pieces after which nothing is left to compute.
std::vector<Draw> Engine::Impl::draws_of(std::span<const ScheduledPiece> pieces) const {
  std::vector<Draw> draws;
  int64_t row = -1;
  for (const ScheduledPiece& piece : pieces) {
    row += piece.logit_rows;
    Choice& choice = piece.state->choices[static_cast<size_t>(piece.choice)];
    if (piece.count < piece.state->to_compute(choice)) continue;
    if (!choice.output.empty()) {
      draws.push_back({&piece, &choice, row});
    } else {  // all begin with the prompt's last row
      for (Choice& each : piece.state->choices) draws.push_back({&piece, &each, row});
    }
  }
  return draws;
}

// Side by side: what a choice draws depends on its row and its own generator alone.
void Engine::Impl::draw_all(const StepRows& rows, std::span<Draw> draws) {
  if (draws.size() <= 1) {
    for (Draw& each : draws) draw(rows, each, samplers[0]);
    return;
  }
  std::atomic<size_t> next = 0;
  team.run([&](int worker) {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < draws.size();)
      draw(rows, draws[i], samplers[static_cast<size_t>(worker)]);
  });
}

void Engine::Impl::draw(const StepRows& rows, Draw& draw, Sampler& sampler) const {
  const Request& request = draw.piece->state->request;
  Choice& choice = *draw.choice;
  const auto size = static_cast<size_t>(limits.vocab_size);
  const bool has_logits = rows.ids.empty();
  const auto row = has_logits ? rows.logits.subspan(static_cast<size_t>(draw.row) * size, size) : rows.logits;
  try {
    draw.id = has_logits ? sampler.draw(row, how_to(draw, vocabulary.ends))
                         : Sampler::possible(rows.ids[static_cast<size_t>(draw.row)], limits.vocab_size);
    ops::move_on(request.sampling, choice.random);
    draw.ends = !request.ignore_eos && std::binary_search(vocabulary.ends.begin(), vocabulary.ends.end(), draw.id);
    if (request.logprobs >= 0 && !draw.ends) draw.logprob = sampler.log_probability(row, draw.id, request.logprobs);
  } catch (const std::exception&) {
    draw.failure = std::current_exception();
  }
}

// ---------------------------------------------------------------- postprocess

void Engine::Impl::postprocess(const ScheduledPiece& piece, std::span<const float> rows, std::span<Draw> drawn) {
  RequestState& state = *piece.state;
  Choice& choice = state.choices[static_cast<size_t>(piece.choice)];
  if (choice.computed < state.prompt_size())
    counts.prompt_tokens_computed +=
        static_cast<uint64_t>(std::min(piece.count, state.prompt_size() - choice.computed));
  if (state.wants_prompt_logits()) add_prompt_logprobs(piece, rows);
  scheduler.ran(piece);
  for (Draw& each : drawn) take(each);
}

void Engine::Impl::take(Draw& drawn) {
  if (drawn.failure) std::rethrow_exception(drawn.failure);
  RequestState& state = *drawn.piece->state;
  const Request& request = state.request;
  Choice& choice = *drawn.choice;
  Update update{.request = state.id, .choice = choice.index};
  const auto at = now();
  if (choice.output.empty()) {
    counts.time_to_first_token.add(std::chrono::duration<double>(at - state.arrived).count());
    update.prompt = state.prompt_logprobs;  // the request's, and so each choice's
  } else {
    counts.token_gap.add(std::chrono::duration<double>(at - choice.last_token).count());
  }
  choice.last_token = at;
  if (state.max_tokens == 0) {
    update.finish = "length";
    return end_choice(state, choice, std::move(update));
  }
  if (drawn.ends) {
    update.text = choice.text.finish();
    update.finish = "stop";
    return end_choice(state, choice, std::move(update));
  }
  update.logprob = std::move(drawn.logprob);
  const bool at_start = choice.output.empty() && vocabulary.text(request.prompt.back(), false, false).empty();
  update.id = drawn.id;
  const std::string bytes = vocabulary.text(drawn.id, at_start, request.special_text);
  update.text_offset = choice.text.offset_of(bytes);
  update.text = choice.text.push(bytes);
  choice.output.push_back(drawn.id);
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
void Engine::Impl::add_prompt_logprobs(const ScheduledPiece& piece, std::span<const float> rows) {
  RequestState& state = *piece.state;
  const int64_t first = state.choices[static_cast<size_t>(piece.choice)].computed + 1;
  for (int64_t i = 0; i < piece.count && first + i < state.prompt_size(); ++i) {
    const auto row = rows.subspan(static_cast<size_t>(i * limits.vocab_size), static_cast<size_t>(limits.vocab_size));
    const int32_t id = state.request.prompt[static_cast<size_t>(first + i)];
    state.prompt_logprobs.push_back(samplers[0].log_probability(row, id, state.request.logprobs));
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

void Engine::Impl::fail(RequestState& state, const std::exception_ptr& thrown) {
  const auto [code, message] = failure_of(thrown);
  end_request(state, "error", code, message);
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
