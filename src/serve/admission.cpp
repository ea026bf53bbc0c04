// Who waits is let in: in which order, from which cached beginning, and only where there is room.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "serve/scheduler.h"

namespace weft::serve {
namespace {

int64_t common_tokens(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

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

// Those that were preempted first, in order of arrival. Then keys take turns, whatever the priority of their requests:
// the one whose last turn is longest ago, of those that had none the one whose request came first. Of a key's own
// requests the highest priority is next, which grows with waiting; among equals the one that came first.
std::vector<RequestState*>::iterator Scheduler::next_waiting(std::vector<RequestState*>& waiting,
                                                             Clock::time_point now) const {
  const auto turn = [&](const RequestState& state) {
    if (state.began) return std::tuple(0, uint64_t{0}, state.id);
    const auto last = last_turn_.find(state.request.key);
    return std::tuple(1, last == last_turn_.end() ? uint64_t{0} : last->second, state.id);
  };
  const auto first =
      std::min_element(waiting.begin(), waiting.end(),
                       [&](const RequestState* a, const RequestState* b) { return turn(*a) < turn(*b); });
  if ((*first)->began) return first;
  const std::string& key = (*first)->request.key;
  const auto rank = [&](const RequestState& state) {
    const double waited = std::chrono::duration<double>(now - state.arrived).count();
    return std::tuple(state.request.key != key, -(state.request.priority + std::floor(waited / kSecondsPerPriority)),
                      state.id);
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
    const int64_t most = state.prompt_size() + state.max_tokens;
    const int64_t end = reserves(state) ? most : std::min(state.length(choice) + 1, most);
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

}  // namespace weft::serve
