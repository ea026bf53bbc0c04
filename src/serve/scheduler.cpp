#include "serve/scheduler.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"

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

int64_t common_tokens(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

Scheduler::Scheduler(ModelRunner& model, PrefixCache& cache, const SchedulerOptions& options)
    : model_(model), cache_(cache), options_(options), limits_(model.limits()) {}

void Scheduler::check_fits(const RequestState& state) const {
  const int64_t pages = state.most_pages(limits_.page_size);
  check(pages <= limits_.num_pages, ErrorCode::context_full,
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

// ---------------------------------------------------------------- admission

void Scheduler::admit(const States& states, Running& running, Clock::time_point now, Step& step) {
  std::vector<RequestState*> waiting;
  for (const auto& state : states)
    if (!state->running && !state->paused) waiting.push_back(state.get());
  int choices = 0;
  for (const RequestState* state : running)
    choices += static_cast<int>(
        std::count_if(state->choices.begin(), state->choices.end(), [](const Choice& choice) { return !choice.done; }));
  while (!waiting.empty() && prefill_rows(step, 0) > 0) {
    const auto next = next_waiting(waiting, now);
    RequestState& state = **next;
    if (choices + static_cast<int>(state.choices.size()) > options_.max_running) return;
    const PrefixCache::Match found = match(state);
    waiting.erase(next);
    if (waits_for_prefix(state, found.tokens, running)) continue;
    // Whoever is next waits for room before all others, else a large request would starve.
    if (!try_start(state, found, running)) return;
    last_turn_[state.request.key] = ++turn_;
    choices += static_cast<int>(state.choices.size());
    running.push_back(&state);
    add_decodes(state, step);  // one that was preempted may be cached but for its last token
    add_prefill(state, step);
  }
  if (waiting.empty() && last_turn_.size() > 1024) last_turn_.clear();
}

// Those that were preempted first, in order of arrival; then by priority, which grows with waiting; among equals keys take
// turns; a key's own in order of arrival.
std::vector<RequestState*>::iterator Scheduler::next_waiting(std::vector<RequestState*>& waiting,
                                                             Clock::time_point now) const {
  const auto rank = [&](const RequestState& state) {
    if (state.began) return std::tuple(0, 0., uint64_t{0}, state.id);
    const double waited = std::chrono::duration<double>(now - state.arrived).count();
    const auto turn = last_turn_.find(state.request.key);
    return std::tuple(1, -(state.request.priority + std::floor(waited / kSecondsPerPriority)),
                      turn == last_turn_.end() ? uint64_t{0} : turn->second, state.id);
  };
  return std::min_element(waiting.begin(), waiting.end(),
                          [&](const RequestState* a, const RequestState* b) { return rank(*a) < rank(*b); });
}

// What of the tokens is cached. One token at least is left to compute, for its logits.
PrefixCache::Match Scheduler::match(RequestState& state) const {
  if (state.wants_prompt_logits()) return {};
  const Choice& trunk = *state.trunk();
  const int64_t most = state.request.reproducible ? state.prompt_size() - 1 : state.length(trunk) - 1;
  const PrefixCache::Match found = cache_.match(salt_of(state.request), state.tokens(trunk, 0, most));
  return state.request.reproducible ? cache_.shortened(found, found.tokens - found.tokens % kReproducibleCut) : found;
}

// Whether a running request is about to compute more of its prompt than is cached.
bool Scheduler::waits_for_prefix(const RequestState& state, int64_t cached, const Running& running) const {
  if (state.wants_prompt_logits()) return false;
  const int64_t step = state.request.reproducible ? kReproducibleCut : limits_.page_size;
  for (RequestState* other : running) {
    if (other->paused || other->request.reproducible != state.request.reproducible ||
        other->request.key != state.request.key)
      continue;
    const Choice* trunk = other->trunk();
    if (trunk == nullptr || trunk->computed >= other->prompt_size()) continue;
    const int64_t common =
        std::min(common_tokens(other->request.prompt, state.request.prompt), state.prompt_size() - 1);
    const int64_t shared = common - common % step;
    if (shared > cached && trunk->computed < shared) return true;
  }
  return false;
}

// Pages that a request is sure to take yet; a reproducible one, that it may.
int64_t Scheduler::pages_to_come(const RequestState& state) const {
  int64_t pages = 0;
  for (const Choice& choice : state.choices) {
    if (choice.done) continue;
    const int64_t end = reserves(state) ? state.prompt_size() + state.max_tokens : state.length(choice) + 1;
    const bool forks = choice.sequence == kNoSequence && &choice != const_cast<RequestState&>(state).trunk();
    const int64_t there =
        forks ? state.prompt_size() / limits_.page_size : pages_of(choice.computed, limits_.page_size);
    pages += std::max<int64_t>(0, pages_of(end, limits_.page_size) - there);
  }
  return pages;
}

bool Scheduler::try_start(RequestState& state, const PrefixCache::Match& found, const Running& running) {
  Choice& trunk = *state.trunk();
  const PrefixCache::Match match = cache_.lock(found);
  trunk.computed = match.tokens;
  int64_t room = model_.num_free_pages() + cache_.evictable_pages();
  for (const RequestState* other : running) room -= pages_to_come(*other);
  const int64_t forks = trunk.computed >= state.prompt_size() ? pages_of_forks(state) : 0;
  if (pages_to_come(state) > room) {
    trunk.computed = 0;
    cache_.unlock(match.node);
    return false;
  }
  cache_.evict(forks - model_.num_free_pages());
  try {
    trunk.sequence = cache_.begin(match);
  } catch (...) {
    trunk.computed = 0;
    cache_.unlock(match.node);
    throw;
  }
  state.held = match;
  state.running = true;
  if (!state.began) state.reused = std::min(match.tokens, state.prompt_size());
  state.began = true;
  if (trunk.computed >= state.prompt_size()) fork_choices(state);
  return true;
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
