// Who gets which rows of the next step (docs/scheduler.md). It decides, and gives and takes sequences; tokens, clocks
// and answers are the engine's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "serve/prefix_cache.h"
#include "serve/request_state.h"
#include "serve/step_cost.h"

namespace weft::serve {

struct SchedulerOptions {
  int max_running = 64;         // choices at once
  int64_t max_step_rows = 512;  //
  double target_itl_s = 0.12;
};

// Tokens [choice.computed, choice.computed + count) of a choice, the last `logit_rows` of which give logits.
struct ScheduledPiece {
  RequestState* state;
  int choice;
  int64_t count, logit_rows;
};

class Scheduler {
 public:
  // Prompts of reproducible requests are cut, and reused, at multiples of it.
  static constexpr int64_t kReproducibleCut = 128;
  // Rows of prompts whose every row gives logits: rows of a vocabulary are large.
  static constexpr int64_t kPromptLogitRows = 64;
  static constexpr double kSecondsPerPriority = 10;

  Scheduler(ModelRunner& model, PrefixCache& cache, const SchedulerOptions& options);

  // Throws Error(context_full) for a request that the pool can never hold.
  void check_fits(const RequestState& state) const;
  // The pieces of the next step; room for them is made. Empty when nothing can go on.
  std::vector<ScheduledPiece> schedule(const States& states, Clock::time_point now);
  // After the step: a prompt's new pages are there for others, and where the prompt is complete its choices fork.
  void ran(const ScheduledPiece& piece);
  // A choice or a request gives back what it holds; what a choice computed stays cached.
  void finish(RequestState& state, Choice& choice);
  void release(RequestState& state);
  void learn(const StepCost::Work& work, double seconds) { cost_.learn(work, seconds); }

  uint64_t preemptions() const { return preemptions_; }

 private:
  using Running = std::vector<RequestState*>;
  using Step = std::vector<ScheduledPiece>;
  Step compose(const States& states, Clock::time_point now);
  bool reserves(const RequestState& state) const { return state.request.reproducible; }
  void add_decodes(RequestState& state, Step& step) const;
  void add_prefill(RequestState& state, Step& step) const;
  int64_t prefill_rows(const Step& step, int64_t before) const;
  // admission.cpp
  void admit(const States& states, Running& running, Clock::time_point now, Step& step);
  std::vector<RequestState*>::iterator next_waiting(std::vector<RequestState*>& waiting, Clock::time_point now) const;
  bool waits_for_prefix(const RequestState& state, int64_t cached, const Running& running) const;
  PrefixCache::Match match(RequestState& state) const;
  bool try_start(RequestState& state, const PrefixCache::Match& found, const Running& running);
  int64_t pages_to_come(const RequestState& state) const;
  // scheduler.cpp
  void fork_choices(RequestState& state);
  int64_t pages_of_piece(const ScheduledPiece& piece) const;
  int64_t pages_of_forks(const RequestState& state) const;
  void make_room(Running& running, Step& step);
  void preempt(RequestState& state);
  void give_back(RequestState& state, Choice& choice);
  static std::string salt_of(const Request& request);

  ModelRunner& model_;
  PrefixCache& cache_;
  SchedulerOptions options_;
  ModelRunner::Limits limits_;
  StepCost cost_;
  uint64_t preemptions_ = 0, turn_ = 0;
  std::map<std::string, uint64_t> last_turn_;  // of a key
};

}  // namespace weft::serve
