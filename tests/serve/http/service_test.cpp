// The routes without sockets, over a model of fifty lines that steps when the test says so.
#include "serve/http/service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tests/serve/fake_model.h"

namespace weft::serve::http {
namespace {

using nlohmann::json;

// Keeps the answer; respond waits for `gate`, where there is one, before it returns.
class Recorded : public Exchange {
 public:
  explicit Recorded(std::mutex* gate = nullptr) : gate_(gate) {}
  void respond(Response response) override {
    {
      const std::lock_guard lock(mutex_);
      response_ = std::move(response);
    }
    arrived_.notify_all();
    if (gate_ != nullptr) const std::lock_guard wait(*gate_);
  }
  void begin_events() override {}
  void send_event(std::string) override {}
  void end_events() override {}
  void watch(std::function<void()>, std::function<void(bool)>) override {}
  // 0: none is there.
  int status() const {
    const std::lock_guard lock(mutex_);
    return response_ ? response_->status : 0;
  }
  Response wait() const {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return response_.has_value(); });
    return *response_;
  }

 private:
  std::mutex* gate_;
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  std::optional<Response> response_;
};

class HttpService : public ::testing::Test {
 protected:
  HttpRequest post(const std::string& path, const json& body) const {
    return {.method = "POST", .path = path, .headers = {{"host", "localhost"}}, .body = body.dump()};
  }
  json numbers(int tokens) const { return {{"prompt", {1, 2, 3}}, {"max_tokens", tokens}, {"temperature", 0}}; }
  void start(const EngineOptions& options, const ServerOptions& server = {}, const ChatTemplate* chat = nullptr) {
    engine_.emplace(EngineMaker::make(std::make_unique<testing::FakeModel>(4, 64), testing::fake_vocabulary(), options,
                                      [this] { return Clock::time_point(std::chrono::seconds(seconds_)); }));
    service_.emplace(*engine_, tokenizer_, chat, server);
  }
  std::shared_ptr<Recorded> ask(const HttpRequest& request, std::mutex* gate = nullptr) {
    auto exchange = std::make_shared<Recorded>(gate);
    service_->handle(request, exchange);
    return exchange;
  }

  std::atomic<int> seconds_ = 0;  // of the engine's time
  const ModelFile file_{WEFT_TEST_DATA "/stories260K.gguf"};
  const Tokenizer tokenizer_{file_};
  std::optional<Engine> engine_;
  std::optional<Service> service_;
};

TEST_F(HttpService, TakesNoMoreBodiesToReadThanItsQueueHolds) {
  start({.max_queued = 4});
  std::mutex gate;
  std::unique_lock closed(gate);
  const auto first = ask(post("/tokenize", {{"prompt", "hello"}}), &gate);  // holds up those behind it
  ASSERT_EQ(first->wait().status, 200);
  std::vector<std::shared_ptr<Recorded>> burst;
  for (int i = 0; i < 10; ++i) burst.push_back(ask(post("/v1/completions", numbers(2))));
  for (size_t i = 0; i < burst.size(); ++i) EXPECT_EQ(burst[i]->status(), i < 3 ? 0 : 429) << i;
  EXPECT_EQ(ask(post("/tokenize", {{"prompt", "hello"}}))->status(), 429);
  EXPECT_EQ(engine_->stats().requests_waiting, 4);
  EXPECT_EQ(engine_->stats().requests_refused, 8u);
  closed.unlock();
  while (service_->open_generations() > 0) engine_->step();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(burst[i]->wait().status, 200) << burst[i]->wait().body;
  EXPECT_EQ(engine_->stats().requests_waiting, 0);
  EXPECT_EQ(engine_->stats().requests_refused, 8u);
}

TEST_F(HttpService, TakesNoMoreBytesToReadThanItsQueueHoldsTokens) {
  start({.max_queued_tokens = 1000});
  std::mutex gate;
  std::unique_lock closed(gate);
  const auto first = ask(post("/tokenize", {{"prompt", std::string(2000, 'x')}}), &gate);
  ASSERT_EQ(first->wait().status, 200);
  const auto second = ask(post("/tokenize", {{"prompt", std::string(2000, 'x')}}));
  EXPECT_EQ(second->status(), 0);
  EXPECT_EQ(ask(post("/v1/completions", numbers(2)))->status(), 429);
  closed.unlock();
  EXPECT_EQ(second->wait().status, 200);
}

TEST_F(HttpService, NamesTheFieldThatTheEngineRefuses) {
  start({});
  for (const auto& [field, value] : std::initializer_list<std::pair<std::string, json>>{{"temperature", 101},
                                                                                        {"top_p", 0},
                                                                                        {"min_p", 2},
                                                                                        {"presence_penalty", 101},
                                                                                        {"frequency_penalty", -101},
                                                                                        {"repetition_penalty", 0},
                                                                                        {"logit_bias", {{"5", 101}}},
                                                                                        {"max_tokens", 300},
                                                                                        {"min_tokens", 9},
                                                                                        {"prompt", {1, 99}},
                                                                                        {"stop", {""}}}) {
    json body = numbers(2);
    body[field] = value;
    const Response response = ask(post("/v1/completions", body))->wait();
    EXPECT_EQ(response.status, 400) << field;
    EXPECT_EQ(json::parse(response.body).at("error").at("param"), field) << response.body;
  }
}

TEST_F(HttpService, NamesFieldsOfAChatAsItsClientWroteThem) {
  const ChatTemplate chat_template("{% for m in messages %}{{ m.content }}{% endfor %}");
  start({}, {}, &chat_template);
  const auto refused = [&](const std::string& content, const std::string& field, const json& more) {
    json body{{"messages", {{{"role", "user"}, {"content", content}}}}};
    body.update(more);
    const Response response = ask(post("/v1/chat/completions", body))->wait();
    EXPECT_EQ(response.status, 400);
    const json error = json::parse(response.body).at("error");
    EXPECT_EQ(error.at("param"), field) << response.body;
    EXPECT_TRUE(error.at("message").get<std::string>().starts_with("context_full: " + field)) << response.body;
    EXPECT_EQ(error.at("code"), "context_full");
  };
  refused(std::string(3000, 'x'), "messages", json::object());
  refused("x", "max_tokens", {{"max_tokens", 300}});
  refused("x", "max_completion_tokens", {{"max_completion_tokens", 300}});
  service_.reset();  // before the template
}

TEST_F(HttpService, SaysWhichLimitOfTimeARequestMet) {
  ServerOptions server;
  server.limits.queue_s = 3;
  server.limits.request_s = 9;
  start({.max_running = 1}, server);
  const auto first = ask(post("/v1/completions", numbers(100)));
  while (engine_->stats().requests_running == 0) engine_->step();
  const auto second = ask(post("/v1/completions", numbers(1)));
  ask(post("/tokenize", {{"prompt", "hello"}}))->wait();  // behind it: it has been handed over
  for (const auto& [seconds, late, word] : {std::tuple(4, second, "waited"), std::tuple(10, first, "was there")}) {
    EXPECT_EQ(late->status(), 0);
    seconds_ = seconds;
    while (late->status() == 0) engine_->step();
    const json error = json::parse(late->wait().body).at("error");
    EXPECT_EQ(late->wait().status, 408);
    EXPECT_EQ(error.at("code"), "timed_out");
    EXPECT_NE(error.at("message").get<std::string>().find(word), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace weft::serve::http
