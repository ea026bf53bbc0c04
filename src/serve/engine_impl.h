// What an engine is made of: engine.cpp steps, engine_api.cpp speaks with other threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

#include "serve/engine.h"
#include "serve/limits_met.h"
#include "serve/sampler.h"
#include "serve/scheduler.h"

namespace weft::serve {

// Throws Error(invalid_argument).
EngineOptions checked(const EngineOptions& options);

// What a step gave of its rows: logits, or ids where those of the greatest logits are all that is asked for.
struct StepRows {
  std::span<const float> logits = {};  // [rows, vocabulary]
  std::span<const int32_t> ids = {};   // [rows]
};

// A token to draw for a choice, and what came of it.
struct Draw {
  const ScheduledPiece* piece;
  Choice* choice;
  int64_t row;  // of the step's
  int32_t id = -1;
  bool ends = false;  // the answer, which does without the token
  std::optional<TokenLogprob> logprob = {};
  std::exception_ptr failure = {};
};

struct Engine::Impl {
  std::unique_ptr<ModelRunner> model;
  Vocabulary vocabulary;
  Now now;
  EngineOptions options;
  ModelRunner::Limits limits;
  PrefixCache cache;
  Scheduler scheduler;
  WorkerTeam& team;
  std::vector<Sampler> samplers;  // of the team's workers
  States states;                  // of the thread that steps, as all above
  EngineStats counts;
  std::deque<double> step_s;
  int failed_steps = 0;  // one after another

  // What other threads say and see.
  mutable std::mutex mutex;
  std::condition_variable wake;
  States inbox;
  std::vector<RequestId> cancels;
  std::vector<std::pair<RequestId, bool>> pauses;
  bool stopping = false;
  RequestId next_id = 1;
  uint64_t refused = 0;
  LimitsMet limits_met;
  int64_t inbox_tokens = 0;
  int64_t entering = 0, entering_tokens = 0;  // that are still to be read
  EngineStats published;
  mutable bool view_wanted = true;
  EngineView published_view;

  Impl(std::unique_ptr<ModelRunner> m, Vocabulary v, const EngineOptions& o, Now n = Clock::now)
      : model(std::move(m)),
        vocabulary(std::move(v)),
        now(std::move(n)),
        options(checked(o)),
        limits(model->limits()),
        cache(*model),
        scheduler(*model, cache,
                  {.max_running = o.max_running, .max_step_rows = o.max_step_rows, .target_itl_s = o.target_itl_s}),
        team(o.forward.team != nullptr ? *o.forward.team : WorkerTeam::shared()),
        samplers(static_cast<size_t>(team.num_workers())) {
    team.run([](int) {});  // starts its threads: in a step nothing can fail for want of them
    publish();
  }
  ~Impl() {
    for (auto& state : states) scheduler.release(*state);
  }

  double seconds_since(Clock::time_point start) const { return std::chrono::duration<double>(now() - start).count(); }
  std::unique_ptr<RequestState> make_state(Request request, OnUpdate on_update) const;
  void check_queue() const;
  void check_and_count();
  int64_t requests_waiting() const {
    return published.requests_waiting + static_cast<int64_t>(inbox.size()) + entering;
  }
  int64_t tokens_waiting() const { return published.tokens_waiting + inbox_tokens + entering_tokens; }
  bool step();
  bool one_step();
  void fail_step(const std::exception_ptr& thrown);
  void take_messages();
  void end_early(Clock::time_point at);
  void run_pieces(std::span<const ScheduledPiece> pieces);
  StepRows run_model(std::span<const ScheduledPiece> pieces, std::span<const Draw> draws);
  void run_apart(std::span<const ScheduledPiece> pieces);
  std::vector<Draw> draws_of(std::span<const ScheduledPiece> pieces) const;
  void answer(std::span<const ScheduledPiece> pieces, const StepRows& rows, std::span<Draw> draws);
  void draw_all(const StepRows& rows, std::span<Draw> draws);
  void draw(const StepRows& rows, Draw& draw, Sampler& sampler) const;
  void postprocess(const ScheduledPiece& piece, std::span<const float> rows, std::span<Draw> drawn);
  void take(Draw& drawn);
  void add_prompt_logprobs(const ScheduledPiece& piece, std::span<const float> rows);
  void end_choice(RequestState& state, Choice& choice, Update update);
  void end_request(RequestState& state, const std::string& finish, const std::string& code, const std::string& message);
  void fail(RequestState& state, const std::exception_ptr& thrown);
  void emit(const RequestState& state, Update& update, bool last = false);
  void publish();
};

}  // namespace weft::serve
