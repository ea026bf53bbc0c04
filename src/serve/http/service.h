// The routes, apart from sockets: who may ask, what is asked, and the engine's answers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "serve/http/exchange.h"
#include "serve/http/failure.h"
#include "serve/http/limits.h"
#include "serve/limits_met.h"
#include "weft/serve.h"

namespace weft::serve::http {

class Service {
 public:
  // All have to outlive it. `chat_template` null: the model has none. The thread that steps the engine is the caller's.
  Service(Engine& engine, const Tokenizer& tokenizer, const ChatTemplate* chat_template, const ServerOptions& options);
  ~Service();

  // What is wrong with a request before its body is read: who asks, from where, for what.
  std::optional<Response> refuse(const HttpRequest& head) const;
  // Answers; bodies are read by a thread of its own.
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);
  // Nothing new from now on.
  void drain();
  // After the last request: what waits to be read is dropped.
  void end();
  int64_t open_generations() const;
  LimitsMet& limits_met() const;

  struct Counts {
    int64_t connections = 0, bodies_waiting = 0;
    uint64_t refused_connections = 0, timeouts = 0, stalls = 0, accept_failures = 0, failures = 0, log_failures = 0;
  };
  void set_transport_counts(const Counts& counts);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::serve::http
