#include "serve/http/generation.h"

#include "base/check.h"

namespace weft::serve::http {

Generation::Generation(Engine& engine, std::shared_ptr<Exchange> exchange, OnEnd on_end)
    : engine_(engine), exchange_(std::move(exchange)), on_end_(std::move(on_end)) {}

void Generation::watch() {
  const std::weak_ptr<Generation> self = weak_from_this();
  exchange_->watch(
      [self] {
        if (const auto alive = self.lock()) alive->on_closed();
      },
      [self](bool stalled) {
        if (const auto alive = self.lock()) alive->pause(stalled);
      });
}

bool Generation::over() const {
  const std::lock_guard lock(mutex_);
  return over_;
}

void Generation::start(const std::function<ApiRequest()>& read, const Tokenizer& tokenizer) {
  if (over()) return;  // the client has gone
  std::optional<ApiRequest> api;
  std::optional<ApiAnswer> answer;
  std::exception_ptr thrown;
  try {
    api.emplace(read());
    answer.emplace(*api, tokenizer, api->model);
  } catch (...) {
    thrown = std::current_exception();
  }
  // The engine may answer before all are handed over: it waits for the lock then.
  const std::lock_guard lock(mutex_);
  if (over_) return;
  try {
    if (thrown) std::rethrow_exception(thrown);
    written_ = api->written;
    stream_ = api->stream;
    answer_.emplace(std::move(*answer));
    open_ = api->requests.size();
    for (size_t i = 0; i < api->requests.size(); ++i)
      ids_.push_back(engine_.submit(std::move(api->requests[i]), [self = shared_from_this(), i](const Update& update) {
        self->on_update(i, update);
      }));
  } catch (...) {
    fail(failure_of(std::current_exception()));
  }
}

void Generation::on_update(size_t index, const Update& update) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  if (update.finish == "error") return fail(failure_of_code(update.error_code, update.error));
  if (update.finish == "cancelled") return fail({503, "cancelled", "the server ended the request"});
  try {
    take(index, update);
  } catch (...) {
    fail(failure_of(std::current_exception()));
  }
}

void Generation::take(size_t index, const Update& update) {
  if (first_token_s_ < 0) first_token_s_ = seconds_since(start_);
  const std::vector<std::string> events = answer_->add(index, update);
  if (stream_ && !std::exchange(streaming_, true)) exchange_->begin_events();
  for (const std::string& event : events) exchange_->send_event(event);
  if (update.last && --open_ == 0) finish();
}

void Generation::finish() {
  if (stream_) {
    for (const std::string& event : answer_->last_events()) exchange_->send_event(event);
    exchange_->end_events();
  } else {
    exchange_->respond({.status = 200, .body = answer_->body()});
  }
  end(200);
}

void Generation::fail(Failure failure) {
  if (const auto written = written_.find(failure.param); written != written_.end())
    failure = failure.with_field(written->second);
  for (const RequestId id : ids_) engine_.cancel(id);
  if (streaming_) {
    exchange_->send_event(failure.json());
    exchange_->end_events();
  } else {
    exchange_->respond(response_of(failure));
  }
  end(failure.status);
}

void Generation::on_closed() {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  for (const RequestId id : ids_) engine_.cancel(id);
  end(499);
}

void Generation::pause(bool paused) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  for (const RequestId id : ids_) engine_.pause(id, paused);
}

void Generation::end(int status) {
  over_ = true;
  Figures figures{status, seconds_since(start_), first_token_s_, 0, 0, 0};
  if (answer_) {
    figures.prompt_tokens = answer_->prompt_tokens();
    figures.cached_tokens = answer_->cached_tokens();
    figures.output_tokens = answer_->output_tokens();
  }
  on_end_(figures);
  exchange_.reset();  // the connection may end before the engine forgets the request
}

}  // namespace weft::serve::http
