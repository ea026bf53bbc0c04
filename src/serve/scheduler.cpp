#include "serve/scheduler.h"

#include <algorithm>

#include "serve/request_checks.h"

namespace weft::serve {
namespace {

constexpr int64_t kLeastPrefillRows = 16;  // of a step: prompts go on however tight the target is

bool decodes(const RequestState& state, const Choice& choice) {
  return !choice.done && choice.sequence != kNoSequence && !choice.output.empty() && state.to_compute(choice) == 1;
}

bool prefills(const RequestState& state, const Choice& choice) {
  return !choice.done && choice.sequence != kNoSequence && !decodes(state, choice);
}

int64_t rows_of(const std::vector<ScheduledPiece>& step) {
  int64_t rows = 0;
  for (const ScheduledPiece& piece : step) rows += piece.count;
  return rows;
}

}  // namespace

Scheduler::Scheduler(ModelRunner& model, PrefixCache& cache, const SchedulerOptions& options)
    : model_(model), cache_(cache), options_(options), limits_(model.limits()) {}

void Scheduler::check_fits(const RequestState& state) const {
  const int64_t pages = state.most_pages(limits_.page_size);
  check_limit(
      pages <= limits_.num_pages, "n", Limit::kv_tokens, ErrorCode::context_full,
      "n = {} answers of up to {} tokens after a prompt of {} need {} pages of {} tokens; the pool holds {}: lower n "
      "or max_tokens",
      state.choices.size(), state.max_tokens, state.prompt_size(), pages, limits_.page_size, limits_.num_pages);
}

// Reproducible prompts are cached apart: others are computed in other cuts.
std::string Scheduler::salt_of(const Request& request) { return (request.reproducible ? "r" : "o") + request.key; }

std::vector<ScheduledPiece> Scheduler::schedule(const States& states, Clock::time_point now) {
  const uint64_t before = preemptions_;
  Step step = compose(states, now);
  // Who was preempted begins again at once where nobody else runs.
  if (step.empty() && preemptions_ != before) step = compose(states, now);
  std::stable_partition(step.begin(), step.end(),
                        [](const ScheduledPiece& piece) { return !piece.state->request.reproducible; });
  return step;
}

std::vector<ScheduledPiece> Scheduler::compose(const States& states, Clock::time_point now) {
  Running running;
  for (const auto& state : states)
    if (state->running) running.push_back(state.get());
  Step step;
  for (RequestState* state : running)
    if (const Choice* trunk = state->trunk(); trunk->computed >= state->prompt_size()) fork_choices(*state);
  for (RequestState* state : running) add_decodes(*state, step);
  for (RequestState* state : running) add_prefill(*state, step);
  admit(states, running, now, step);
  make_room(running, step);
  return step;
}

void Scheduler::add_decodes(RequestState& state, Step& step) const {
  for (const Choice& choice : state.choices)
    if (!state.paused && decodes(state, choice)) step.push_back({&state, choice.index, 1, 1});
}

// How many rows of prompts the step still takes for a sequence that holds `before` tokens.
int64_t Scheduler::prefill_rows(const Step& step, int64_t before) const {
  const int64_t left = options_.max_step_rows - rows_of(step);
  StepCost::Work work;
  bool any_decodes = false, any_prefills = false;
  for (const ScheduledPiece& piece : step) {
    const Choice& choice = piece.state->choices[static_cast<size_t>(piece.choice)];
    work.add(piece.count, choice.computed);
    (decodes(*piece.state, choice) ? any_decodes : any_prefills) = true;
  }
  if (!any_decodes) return left;
  const int64_t fits = cost_.rows_that_fit(work, before, options_.target_itl_s, left);
  return any_prefills ? fits : std::max(fits, std::min(left, kLeastPrefillRows));
}

void Scheduler::add_prefill(RequestState& state, Step& step) const {
  if (state.paused) return;
  for (const Choice& choice : state.choices) {
    if (!prefills(state, choice)) continue;
    const int64_t rows = prefill_rows(step, choice.computed);
    int64_t count = std::min(rows, state.to_compute(choice));
    if (state.wants_prompt_logits()) count = std::min(count, kPromptLogitRows);
    if (state.request.reproducible) {
      // A whole cut or nothing; the first prompt of a step goes on whatever the target says.
      const int64_t cut = std::min(state.to_compute(choice), kReproducibleCut - choice.computed % kReproducibleCut);
      const bool first = std::all_of(step.begin(), step.end(), [](const ScheduledPiece& p) {
        return decodes(*p.state, p.state->choices[static_cast<size_t>(p.choice)]);
      });
      const bool fits = cut <= rows || (first && cut <= options_.max_step_rows - rows_of(step));
      count = fits ? cut : 0;
    }
    if (count <= 0) return;
    const bool completes = count == state.to_compute(choice);
    step.push_back({&state, choice.index, count, state.wants_prompt_logits() ? count : completes ? 1 : 0});
  }
}

// ---------------------------------------------------------------- pages

int64_t Scheduler::pages_of_forks(const RequestState& state) const {
  if (state.prompt_size() % limits_.page_size == 0) return 0;
  return std::count_if(state.choices.begin(), state.choices.end(),
                       [](const Choice& c) { return !c.done && c.sequence == kNoSequence; });
}

int64_t Scheduler::pages_of_piece(const ScheduledPiece& piece) const {
  const Choice& choice = piece.state->choices[static_cast<size_t>(piece.choice)];
  const int64_t end = choice.computed + piece.count;
  const bool completes = choice.computed < piece.state->prompt_size() && end >= piece.state->prompt_size();
  return pages_of(end, limits_.page_size) - pages_of(choice.computed, limits_.page_size) +
         (completes ? pages_of_forks(*piece.state) : 0);
}

// The youngest are preempted until the step has its pages, what others reserved left alone.
void Scheduler::make_room(Running& running, Step& step) {
  for (;;) {
    int64_t room = model_.num_free_pages() + cache_.evictable_pages(), needed = 0, all = 0;
    for (const RequestState* state : running)
      if (reserves(*state)) room -= pages_to_come(*state);
    for (const ScheduledPiece& piece : step) {
      const int64_t pages = pages_of_piece(piece);
      all += pages;
      if (!reserves(*piece.state)) needed += pages;
    }
    if (needed <= room) {
      cache_.evict(all - model_.num_free_pages());
      // Not yet, where sequences still use what was evicted.
      if (all <= model_.num_free_pages()) return;
    }
    const auto youngest =
        std::max_element(running.begin(), running.end(), [&](const RequestState* a, const RequestState* b) {
          return std::pair(!reserves(*a), a->id) < std::pair(!reserves(*b), b->id);
        });
    RequestState* victim = *youngest;
    ensure(!reserves(*victim), "pages of a reproducible request are not there");
    std::erase_if(step, [&](const ScheduledPiece& piece) { return piece.state == victim; });
    running.erase(youngest);
    preempt(*victim);
  }
}

void Scheduler::preempt(RequestState& state) {
  for (Choice& choice : state.choices) give_back(state, choice);
  cache_.unlock(std::exchange(state.held, {}).node);
  if (state.wants_prompt_logits()) state.prompt_logprobs.clear();
  state.running = false;
  ++preemptions_;
}

// What a choice computed stays in the cache as long as nobody needs the pages. Decode writes other bits than prefill:
// reproducible answers stay out.
void Scheduler::give_back(RequestState& state, Choice& choice) {
  if (choice.sequence != kNoSequence) {
    try {
      if (!state.request.reproducible)
        cache_.keep(salt_of(state.request), state.tokens(choice, 0, choice.computed), choice.sequence);
    } catch (const std::bad_alloc&) {  // it is computed again, then
    }
    model_.release(std::exchange(choice.sequence, kNoSequence));
  }
  choice.computed = 0;
}

// ---------------------------------------------------------------- after the step

void Scheduler::ran(const ScheduledPiece& piece) {
  RequestState& state = *piece.state;
  Choice& choice = state.choices[static_cast<size_t>(piece.choice)];
  const int64_t before = choice.computed;
  choice.computed += piece.count;
  if (before >= state.prompt_size()) return;
  const int64_t shared = std::min(choice.computed, state.prompt_size());
  const int64_t cut = state.request.reproducible ? shared - shared % kReproducibleCut : shared;
  state.held = cache_.extend(salt_of(state.request), state.held,
                             std::span(state.request.prompt).first(static_cast<size_t>(cut)), choice.sequence);
  if (choice.computed >= state.prompt_size()) fork_choices(state);
}

void Scheduler::fork_choices(RequestState& state) {
  const Choice& trunk = *state.trunk();
  for (Choice& choice : state.choices) {
    if (choice.done || choice.sequence != kNoSequence) continue;
    choice.sequence = model_.fork(trunk.sequence, state.prompt_size());
    choice.computed = state.prompt_size();
  }
}

void Scheduler::finish(RequestState& state, Choice& choice) {
  give_back(state, choice);
  choice.done = true;
}

void Scheduler::release(RequestState& state) {
  for (Choice& choice : state.choices)
    if (choice.sequence != kNoSequence) model_.release(std::exchange(choice.sequence, kNoSequence));
  cache_.unlock(std::exchange(state.held, {}).node);
  state.running = false;
}

}  // namespace weft::serve
