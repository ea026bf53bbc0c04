#include "serve/http/service.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <charconv>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>

#include "decode/text_stream.h"
#include "models/sampling_defaults.h"
#include "serve/engine.h"
#include "serve/http/access.h"
#include "serve/http/fields.h"
#include "serve/http/generation.h"
#include "serve/http/json.h"
#include "serve/http/log_thread.h"
#include "serve/http/metrics.h"
#include "serve/http/page.h"
#include "serve/http/work_queue.h"

namespace weft::serve::http {
namespace {

using nlohmann::json;

constexpr std::string_view kModelRoute = "/v1/models/";
constexpr int64_t kBytesPerToken = 4;  // of bodies, about: before they are read nobody knows

// What a head says of its body's length; 0: nothing, or nonsense, which reading it will find.
size_t length_of_body(const HttpRequest& head) {
  const std::string text = head.header("content-length");
  size_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  return error == std::errc() && end == text.data() + text.size() ? length : 0;
}

// Of a time that runs since the request came; the engine takes 0 as no limit.
double what_is_left(int64_t seconds, Clock::time_point arrived) {
  return seconds == 0 ? 0 : std::max(1e-3, static_cast<double>(seconds) - seconds_since(arrived));
}

// Of a path: %2F -> /. What is no such code stays as it is.
std::string decoded(std::string_view path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    unsigned code = 0;
    const char* digits = path.data() + i + 1;
    if (path[i] == '%' && i + 2 < path.size() && std::from_chars(digits, digits + 2, code, 16).ptr == digits + 2) {
      text += static_cast<char>(code);
      i += 2;
    } else {
      text += path[i];
    }
  }
  return text;
}

}  // namespace

Response response_of(const Failure& failure) {
  Response response{.status = failure.status, .body = failure.json()};
  if (failure.status == 429 || failure.status == 503) response.headers.emplace_back("Retry-After", "1");
  // Who asks again waits as long again.
  if (failure.status == 504) response.headers.emplace_back("x-should-retry", "false");
  if (failure.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

struct Service::Impl {
  Engine& engine;
  LimitsMet& limits_met = EngineMaker::limits_met(engine);
  const Tokenizer& tokenizer;
  ServerOptions options;
  Prompter prompter;
  Prompter any_length{prompter.tokenizer, prompter.chat_template};  // of texts that nobody answers
  Access access;
  int64_t created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::atomic<bool> draining = false;
  std::atomic<int64_t> open = 0;
  mutable std::mutex mutex;
  Counts transport;
  mutable std::array<uint64_t, 6> responses{};
  mutable std::optional<LogThread> log_thread;
  mutable IgnoredFields ignored{[this](const std::string& name) {
    log({{"event", "ignored_field"}, {"field", name}});
  }};
  std::optional<WorkQueue> queue;

  Impl(Engine& e, const Tokenizer& t, const ChatTemplate* c, const ServerOptions& o)
      : engine(e), tokenizer(t), options(o), prompter{t, c, most_tokens(), e.context()}, access(o) {
    if (options.log) log_thread.emplace(options.log);
    queue.emplace(options.limits.waiting_bytes);
  }

  int64_t most_tokens() const {
    const int64_t wanted = options.limits.prompt_tokens, context = engine.context();
    return wanted > 0 ? std::min(wanted, context) : context;
  }
  void check_waiting(const HttpRequest& request, size_t bytes) const {
    counted(limits_met, [&] { queue->check(access.key_of(request), bytes); });
  }
  void log(const json& line) const;
  void note(const HttpRequest& request, int status) const;
  void note(const std::string& path, const Generation::Figures& figures) const;
  using Place = std::shared_ptr<void>;
  Place enter_queue(const HttpRequest& request);
  void generate(HttpRequest request, std::shared_ptr<Exchange> exchange, Place place);
  Response answer(const HttpRequest& request);
  json model(const std::string& id) const;
  Response models() const;
  Response one_model(const std::string& id) const;
  Response tokenize(const HttpRequest& request) const;
  Response detokenize(const HttpRequest& request) const;
};

Service::Service(Engine& engine, const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                 const ServerOptions& options)
    : impl_(std::make_unique<Impl>(engine, tokenizer, chat_template, options)) {}
Service::~Service() = default;

// A full disk is no reason to answer nobody, and a reader that has stopped none to wait.
void Service::Impl::log(const json& line) const {
  if (log_thread) try {
      log_thread->add(dump(line));
    } catch (const std::exception&) {
      log_thread->count_failure();
    }
}

void Service::Impl::note(const HttpRequest& request, int status) const {
  {
    const std::lock_guard lock(mutex);
    ++responses[static_cast<size_t>(std::min(5, status / 100))];
  }
  log({{"event", "request"}, {"method", request.method}, {"path", request.path}, {"status", status}});
}

void Service::Impl::note(const std::string& path, const Generation::Figures& figures) const {
  {
    const std::lock_guard lock(mutex);
    ++responses[static_cast<size_t>(std::min(5, figures.status / 100))];
  }
  log({{"event", "request"},
       {"method", "POST"},
       {"path", path},
       {"status", figures.status},
       {"prompt_tokens", figures.prompt_tokens},
       {"cached_tokens", figures.cached_tokens},
       {"output_tokens", figures.output_tokens},
       {"ttft_s", figures.first_token_s < 0 ? json() : json(figures.first_token_s)},
       {"seconds", figures.seconds}});
}

std::optional<Response> Service::refuse(const HttpRequest& head) const {
  try {
    impl_->access.check(head);
    // A long body that has no room is not even received.
    if (const size_t length = length_of_body(head); length > WorkQueue::kLongBody) impl_->check_waiting(head, length);
    return std::nullopt;
  } catch (...) {
    const Response response = response_of(failure_of(std::current_exception()));
    impl_->note(head, response.status);
    return response;
  }
}

void Service::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  if (request.method == "OPTIONS") {  // its headers say all, and they are the session's
    impl_->note(request, 204);
    return exchange->respond({.status = 204});
  }
  const bool generates = request.path == "/v1/chat/completions" || request.path == "/v1/completions";
  const bool has_body = request.method == "POST";  // text that may be long
  Impl::Place place;                               // in the engine's queue
  try {
    if (has_body) impl_->check_waiting(request, request.body.size());
    if (generates) place = impl_->enter_queue(request);
  } catch (...) {
    Response response = response_of(failure_of(std::current_exception()));
    impl_->note(request, response.status);
    return exchange->respond(std::move(response));
  }
  if (generates) return impl_->generate(std::move(request), std::move(exchange), std::move(place));
  const std::string key = impl_->access.key_of(request);
  const auto shared = std::make_shared<const HttpRequest>(std::move(request));
  const auto answer = [impl = impl_.get(), shared, exchange] {
    Response response;
    try {
      response = impl->answer(*shared);
    } catch (...) {
      response = response_of(failure_of(std::current_exception()));
    }
    impl->note(*shared, response.status);
    exchange->respond(std::move(response));
  };
  if (has_body)
    impl_->queue->add(key, shared->body.size(), answer);
  else
    answer();
}

// A body that is still to be read counts as about as many tokens as it may turn out to have.
Service::Impl::Place Service::Impl::enter_queue(const HttpRequest& request) {
  if (draining) throw Failure(503, "shutting_down", "the server is ending and takes no more requests");
  return engine.enter_queue(
      std::min(1 + static_cast<int64_t>(request.body.size()) / kBytesPerToken, prompter.most_tokens));
}

void Service::Impl::generate(HttpRequest request, std::shared_ptr<Exchange> exchange, Place place) {
  ++open;
  const auto generation = std::make_shared<Generation>(engine, std::move(exchange),
                                                       [this, path = request.path](const Generation::Figures& figures) {
                                                         note(path, figures);
                                                         --open;
                                                       });
  generation->watch();
  const std::string key = access.key_of(request);
  const size_t bytes = request.body.size();
  queue->add(
      key, bytes,
      [this, generation, body = std::make_shared<const std::string>(std::move(request.body)),
       chat = request.path == "/v1/chat/completions", key, arrived = Clock::now(), place = std::move(place)]() mutable {
        generation->start(
            [&] {
              ApiRequest api = counted(limits_met, [&] {
                return chat ? read_chat(*body, prompter, options, &ignored)
                            : read_completion(*body, prompter, options, &ignored);
              });
              for (Request& each : api.requests) {
                each.key = key;
                if (api.may_be_shorter && std::ssize(each.prompt) + each.max_tokens > engine.context())
                  each.max_tokens = -1;
                each.max_queue_s = what_is_left(options.limits.queue_s, arrived);
                each.max_total_s = what_is_left(options.limits.request_s, arrived);
              }
              place.reset();  // the requests take it
              return api;
            },
            tokenizer);
      });
}

Response Service::Impl::answer(const HttpRequest& request) {
  if (request.path == "/") return page();
  if (request.path == "/health") return {.body = R"({"status":"ok"})"};
  if (request.path == "/ready") {
    if (draining) throw Failure(503, "shutting_down", "the server is ending and takes no more requests");
    engine.check_queue();
    return {.body = R"({"status":"ready"})"};
  }
  if (request.path == "/v1/models") return models();
  if (request.path.starts_with(kModelRoute)) return one_model(decoded(request.path.substr(kModelRoute.size())));
  if (request.path == "/metrics") {
    const std::lock_guard lock(mutex);
    transport.bodies_waiting = queue ? queue->bodies() : 0;
    transport.log_failures = log_thread ? log_thread->failures() : 0;
    return {.body = metrics_text(engine.stats(), transport, limits_met, responses.data()),
            .content_type = "text/plain; version=0.0.4"};
  }
  if (request.path == "/inside") return {.body = inside_json(engine.stats(), engine.view())};
  if (request.path == "/tokenize") return tokenize(request);
  return detokenize(request);
}

json Service::Impl::model(const std::string& id) const {
  json model = {
      {"id", id}, {"object", "model"}, {"created", created}, {"owned_by", "weft"}, {"max_model_len", engine.context()}};
  if (const auto& sampling = options.default_sampling)
    model["default_sampling"] = json::parse(to_json(sampling->params, sampling->penalties));
  return model;
}

Response Service::Impl::models() const {
  json all = json::array({model(options.model_name)});
  for (const std::string& alias : options.aliases)
    if (alias != "*") all.push_back(model(alias));
  return {.body = dump({{"object", "list"}, {"data", all}})};
}

Response Service::Impl::one_model(const std::string& id) const {
  if (!is_served(id, options))
    throw Failure(404, "model_not_found",
                  fmt::format("model = {}; this server has {}", shown(id), shown(options.model_name)), "model");
  return {.body = dump(model(id))};
}

Response Service::Impl::tokenize(const HttpRequest& request) const {
  const std::vector<int32_t> ids =
      counted(limits_met, [&] { return read_tokenize(request.body, any_length, options, &ignored); });
  return {.body = dump({{"tokens", ids}, {"count", ids.size()}, {"max_model_len", engine.context()}})};
}

Response Service::Impl::detokenize(const HttpRequest& request) const {
  const std::vector<int32_t> ids =
      counted(limits_met, [&] { return read_detokenize(request.body, options, &ignored); });
  return {.body = dump({{"prompt", decode::valid_utf8(tokenizer.decode(ids))}})};
}

void Service::drain() { impl_->draining = true; }
void Service::end() { impl_->queue.reset(); }
int64_t Service::open_generations() const { return impl_->open; }
LimitsMet& Service::limits_met() const { return impl_->limits_met; }

void Service::set_transport_counts(const Counts& counts) {
  const std::lock_guard lock(impl_->mutex);
  impl_->transport = counts;
}

}  // namespace weft::serve::http
