// The routes without sockets, over a model of fifty lines that steps when the test says so.
#include "serve/http/service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "serve/http/generation.h"
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
    engine_.emplace(
        EngineMaker::make(std::make_unique<testing::FakeModel>(4, 64), testing::fake_vocabulary(), options, [this] {
          return Clock::time_point(
              std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_)));
        }));
    service_.emplace(*engine_, tokenizer_, chat, server);
  }
  std::shared_ptr<Recorded> ask(const HttpRequest& request) { return handled(request, std::make_shared<Recorded>()); }
  // Whoever answers it stands still until gate_ is free.
  std::shared_ptr<Recorded> ask_and_hold(const HttpRequest& request) {
    return handled(request, std::make_shared<Recorded>(&gate_));
  }

  // Limits that were met, and how often, as /metrics shows them: all others show 0.
  std::map<std::string, int> met() {
    std::map<std::string, int> found;
    const HttpRequest request{.method = "GET", .path = "/metrics", .headers = {}, .body = {}};
    const std::string text = ask(request)->wait().body, head = "weft_limits_met_total{limit=\"";
    size_t shown = 0;
    for (size_t at = 0; (at = text.find(head, at)) != std::string::npos; ++shown) {
      const size_t name = at + head.size(), end = text.find('"', name);
      at = end;
      if (const int count = std::stoi(text.substr(end + 3)); count != 0) found[text.substr(name, end - name)] = count;
    }
    EXPECT_EQ(shown, std::size(kLimitNames));
    return found;
  }
  using Met = std::map<std::string, int>;

  std::shared_ptr<Recorded> handled(const HttpRequest& request, std::shared_ptr<Recorded> exchange) {
    service_->handle(request, exchange);
    return exchange;
  }

  std::atomic<double> seconds_ = 0;  // of the engine's time
  std::mutex gate_;                  // an answer may still pass it when its test has ended: it outlives the service
  const ModelFile file_{WEFT_TEST_DATA "/stories260K.gguf"};
  const Tokenizer tokenizer_{file_};
  std::optional<Engine> engine_;
  std::optional<Service> service_;
};

TEST_F(HttpService, TakesNoMoreBodiesToReadThanItsQueueHolds) {
  start({.max_queued = 4});
  std::unique_lock closed(gate_);
  const auto first = ask_and_hold(post("/tokenize", {{"prompt", "hello"}}));  // holds up those behind it
  ASSERT_EQ(first->wait().status, 200);
  std::vector<std::shared_ptr<Recorded>> burst;
  for (int i = 0; i < 10; ++i) burst.push_back(ask(post("/v1/completions", numbers(2))));
  for (size_t i = 0; i < burst.size(); ++i) EXPECT_EQ(burst[i]->status(), i < 4 ? 0 : 429) << i;
  const auto tokenize = ask(post("/tokenize", {{"prompt", "hello"}}));  // asks nothing of the engine
  EXPECT_EQ(tokenize->status(), 0);
  EXPECT_EQ(engine_->stats().requests_waiting, 4);
  EXPECT_EQ(engine_->stats().requests_refused, 6u);
  closed.unlock();
  while (service_->open_generations() > 0) engine_->step();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(burst[i]->wait().status, 200) << burst[i]->wait().body;
  EXPECT_EQ(tokenize->wait().status, 200);
  EXPECT_EQ(engine_->stats().requests_waiting, 0);
  EXPECT_EQ(engine_->stats().requests_refused, 6u);
  EXPECT_EQ(met(), (Met{{"max-queued", 6}}));
}

TEST_F(HttpService, CountsABodyAsTheTokensThatItMayHave) {
  start({.max_queued_tokens = 1000});
  std::unique_lock closed(gate_);
  const auto first = ask_and_hold(post("/tokenize", {{"prompt", "hello"}}));
  ASSERT_EQ(first->wait().status, 200);
  json body = numbers(2);
  body["user"] = std::string(3000, 'x');  // 750 tokens, of which the context holds 256
  std::vector<std::shared_ptr<Recorded>> burst;
  for (int i = 0; i < 5; ++i) burst.push_back(ask(post("/v1/completions", body)));
  for (size_t i = 0; i < burst.size(); ++i) EXPECT_EQ(burst[i]->status(), i < 4 ? 0 : 429) << i;
  EXPECT_EQ(engine_->stats().tokens_waiting, 4 * 256);
  closed.unlock();
  EXPECT_EQ(met(), (Met{{"max-queued-tokens", 1}}));
}

TEST_F(HttpService, BodiesOfAKeyThatWaitLeaveRoomForOtherKeysAndForShortOnes) {
  ServerOptions server;
  server.api_keys = {"a", "b"};
  server.limits.waiting_bytes = 100'000;
  start({}, server);
  const auto tokenize = [&](const std::string& key, size_t bytes) {
    HttpRequest request = post("/tokenize", {{"prompt", std::string(bytes, 'x')}});
    request.headers["authorization"] = "Bearer " + key;
    return request;
  };
  std::unique_lock closed(gate_);
  const auto held = ask_and_hold(tokenize("a", 70'000));  // the thread that reads long bodies stands still
  ASSERT_EQ(held->wait().status, 200);
  EXPECT_EQ(ask(tokenize("a", 66'000))->wait().status, 429);
  const auto other = ask(tokenize("b", 80'000));
  EXPECT_EQ(other->status(), 0);
  EXPECT_EQ(ask(tokenize("a", 60'000))->wait().status, 200);
  HttpRequest head{.method = "POST", .path = "/tokenize", .headers = {}, .body = {}};
  head.headers = {{"host", "localhost"}, {"content-type", "application/json"}, {"content-length", "66000"}};
  for (const auto& [key, status] : {std::pair("a", 429), std::pair("c", 401)}) {
    head.headers["authorization"] = std::string("Bearer ") + key;
    const std::optional<Response> refusal = service_->refuse(head);
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->status, status);
  }
  head.headers["authorization"] = "Bearer b";
  head.headers["content-length"] = "90";
  EXPECT_FALSE(service_->refuse(head).has_value());
  closed.unlock();
  EXPECT_EQ(other->wait().status, 200);
  EXPECT_EQ(service_->limits_met().count(Limit::max_waiting_bytes), 2u);
}

TEST_F(HttpService, RefusesAPromptThatCannotFitForItsLengthAndTokenizesIt) {
  const ChatTemplate chat_template("{% for m in messages %}{{ m.content }}{% endfor %}");
  start({}, {}, &chat_template);
  const std::string text(40'000, 'x');
  json many = json::array();
  for (int i = 0; i < 257; ++i) many.push_back({{"role", "user"}, {"content", "x"}});
  for (const auto& [path, field, value] :
       {std::tuple("/v1/completions", "prompt", json(text)),
        std::tuple("/v1/completions", "prompt", json(std::vector<int>(257, 1))),
        std::tuple("/v1/chat/completions", "messages", many),
        std::tuple("/v1/chat/completions", "messages", json{{{"role", "user"}, {"content", text}}})}) {
    const Response response = ask(post(path, {{field, value}}))->wait();
    EXPECT_EQ(response.status, 400);
    const json error = json::parse(response.body).at("error");
    EXPECT_EQ(error.at("code"), "context_length_exceeded") << error;
    EXPECT_EQ(error.at("param"), field);
  }
  EXPECT_EQ(met(), (Met{{"max-prompt-tokens", 4}}));
  EXPECT_EQ(ask(post("/tokenize", {{"prompt", text}}))->wait().status, 200);
  EXPECT_EQ(ask(post("/tokenize", {{"messages", many}}))->wait().status, 200);
  service_.reset();  // before the template
}

TEST_F(HttpService, AClientMayLeaveWhileItsBodyIsRead) {
  start({});
  struct Watching : Recorded {
    std::function<void()> leave;
    void watch(std::function<void()> closed, std::function<void(bool)>) override { leave = std::move(closed); }
  };
  const auto exchange = std::make_shared<Watching>();
  int status = 0;
  const auto generation =
      std::make_shared<Generation>(*engine_, exchange, [&](const Generation::Figures& end) { status = end.status; });
  generation->watch();
  generation->start(
      [&] {
        exchange->leave();  // as the thread of the sockets says it, which must not wait
        return read_completion(numbers(2).dump(), {tokenizer_}, {});
      },
      tokenizer_);
  EXPECT_EQ(status, 499);
  EXPECT_EQ(engine_->stats().requests_waiting, 0);
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
                                                                                        {"prompt", {1, 99}}}) {
    json body = numbers(2);
    body[field] = value;
    const Response response = ask(post("/v1/completions", body))->wait();
    EXPECT_EQ(response.status, 400) << field;
    EXPECT_EQ(json::parse(response.body).at("error").at("param"), field) << response.body;
  }
}

TEST_F(HttpService, SaysWhatBoundsTheLeastNumberOfTokens) {
  start({});
  const auto message = [&](const json& more) {
    json body = numbers(2);
    body.update(more);
    return json::parse(ask(post("/v1/completions", body))->wait().body).at("error").at("message").get<std::string>();
  };
  EXPECT_EQ(message({{"min_tokens", 9}}), "min_tokens = 9; allowed are 0 to 2, as many as may be made at most");
  EXPECT_EQ(message({{"min_tokens", 300}, {"max_tokens", nullptr}, {"prompt", std::vector<int>(250, 1)}}),
            "min_tokens = 300; allowed are 0 to 6, as many as the context has room for");
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
    EXPECT_NE(error.at("message").get<std::string>().find(field), std::string::npos) << response.body;
    EXPECT_NE(error.at("message").get<std::string>().find("this model's maximum context length is 256 tokens"),
              std::string::npos)
        << "clients look for these words: " << response.body;
    EXPECT_EQ(error.at("code"), "context_length_exceeded");
  };
  refused(std::string(3000, 'x'), "messages", json::object());
  refused("x", "max_tokens", {{"max_tokens", 300}});
  refused("x", "max_completion_tokens", {{"max_completion_tokens", 300}});
  service_.reset();  // before the template
}

TEST_F(HttpService, NamesAllFieldsThatTheEngineRefusesAtOnce) {
  start({});
  json body = numbers(300);
  body["prompt"] = {1, 99};
  body["logit_bias"] = {{"99", 1}};
  const json error = json::parse(ask(post("/v1/completions", body))->wait().body).at("error");
  EXPECT_EQ(error.at("param"), "max_tokens");
  for (const char* name : {"3 fields are wrong", "max_tokens = 300", "prompt[1] = 99", "logit_bias names token 99"})
    EXPECT_NE(error.at("message").get<std::string>().find(name), std::string::npos) << name << " in " << error;
}

TEST_F(HttpService, ComputesAPromptAloneWithoutTokens) {
  start({});
  const auto asked = [&](json body) {
    const auto exchange = ask(post("/v1/completions", body));
    ask(post("/tokenize", {{"prompt", "hello"}}))->wait();  // behind it: it has been handed over
    while (service_->open_generations() > 0) engine_->step();
    return json::parse(exchange->wait().body);
  };
  json body = numbers(0);
  body.update({{"echo", true}, {"logprobs", 1}, {"n", 2}});
  const json answer = asked(body);
  ASSERT_TRUE(answer.contains("choices")) << answer;
  const json& choice = answer.at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_EQ(choice.at("logprobs").at("tokens").size(), 3u) << "of the prompt";
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 0);
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 3);
  EXPECT_EQ(asked(numbers(0)).at("choices").at(0).at("text"), "");
  body = numbers(0);
  body["prompt"] = std::vector<int>(256, 1);
  EXPECT_EQ(asked(body).at("usage").at("prompt_tokens"), 256) << "all of the context, and all pages there are";
}

TEST_F(HttpService, ShowsControlTokensWhereAClientAsksForThem) {
  start({});
  for (const bool skip : {true, false}) {
    json body = numbers(2);
    body.update({{"ignore_eos", true}, {"skip_special_tokens", skip}, {"logit_bias", {{"0", 100}}}});
    const auto exchange = ask(post("/v1/completions", body));
    ask(post("/tokenize", {{"prompt", "hello"}}))->wait();
    while (service_->open_generations() > 0) engine_->step();
    const json answer = json::parse(exchange->wait().body);
    EXPECT_EQ(answer.at("choices").at(0).at("text"), skip ? "" : "<end><end>");
  }
}

TEST_F(HttpService, ShowsItsModelByEachName) {
  ServerOptions server;
  server.model_name = "org/model v1";
  server.aliases = {"gpt-4", "*"};
  start({}, server);
  const auto get = [&](const std::string& path) {
    return ask({.method = "GET", .path = path, .headers = {{"host", "localhost"}}, .body = {}})->wait();
  };
  const json all = json::parse(get("/v1/models").body).at("data");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all.at(0).at("id"), "org/model v1");
  EXPECT_EQ(all.at(1).at("id"), "gpt-4");
  for (const char* path : {"/v1/models/org/model%20v1", "/v1/models/org%2Fmodel%20v1"}) {
    EXPECT_EQ(get(path).status, 200) << path;
    EXPECT_EQ(json::parse(get(path).body), all.at(0)) << path;
  }
  EXPECT_EQ(json::parse(get("/v1/models/anything").body).at("id"), "anything");
  EXPECT_EQ(get("/v1/models/100%").status, 200) << "no code";
  service_.reset();
  server.aliases = {"gpt-4"};
  start({}, server);
  EXPECT_EQ(get("/v1/models/gpt-4").status, 200);
  const Response other = get("/v1/models/anything");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(json::parse(other.body).at("error").at("code"), "model_not_found");
  json body = numbers(1);
  body["model"] = "gpt-4";
  const auto exchange = ask(post("/v1/completions", body));
  ask(post("/tokenize", {{"prompt", "hello"}}))->wait();
  while (service_->open_generations() > 0) engine_->step();
  EXPECT_EQ(json::parse(exchange->wait().body).at("model"), "gpt-4") << "as the client calls it";
}

TEST_F(HttpService, LogsAnIgnoredFieldOnce) {
  std::mutex mutex;
  std::vector<json> lines;
  ServerOptions server;
  server.log = [&](const std::string& line, const std::stop_token&) {
    const std::lock_guard lock(mutex);
    if (json read = json::parse(line); read.at("event") == "ignored_field") lines.push_back(std::move(read));
  };
  start({}, server);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(ask(post("/tokenize", {{"prompt", "hello"}, {"colour", "red"}}))->wait().status, 200);
  service_.reset();  // with the thread of its log
  EXPECT_EQ(lines, (std::vector<json>{{{"event", "ignored_field"}, {"field", "colour"}}}));
}

// The model's context is 256 tokens.
TEST_F(HttpService, TakesWhatTheContextLeavesWhereNobodySaysHowMany) {
  start({});
  for (const auto& [prompt, tokens] : {std::pair(10, 16), std::pair(240, 16), std::pair(252, 4), std::pair(255, 1)}) {
    json body = {
        {"prompt", std::vector<int>(static_cast<size_t>(prompt), 1)}, {"temperature", 0}, {"ignore_eos", true}};
    const auto answer = ask(post("/v1/completions", body));
    while (answer->status() == 0) engine_->step();
    ASSERT_EQ(answer->wait().status, 200) << answer->wait().body;
    EXPECT_EQ(json::parse(answer->wait().body).at("usage").at("completion_tokens"), tokens);
    body["max_tokens"] = 16;
    if (prompt <= 240) continue;
    const auto refused = ask(post("/v1/completions", body));
    while (refused->status() == 0) engine_->step();
    EXPECT_EQ(refused->wait().status, 400) << "what is asked for is not shortened";
  }
}

// 240 tokens and the 16 of the default are the whole context: nothing is left out for the sake of the pool, which holds
// them once.
TEST_F(HttpService, TakesTheDefaultNumberOfTokensWhereTheContextJustHoldsIt) {
  start({});
  json body = {{"prompt", std::vector<int>(240, 1)}, {"temperature", 0}, {"ignore_eos", true}, {"n", 2}};
  const auto refused = ask(post("/v1/completions", body));
  while (refused->status() == 0) engine_->step();
  EXPECT_EQ(refused->wait().status, 400) << refused->wait().body;
  EXPECT_EQ(met(), (Met{{"kv-tokens", 1}}));
}

// A body that waits to be read has arrived.
TEST_F(HttpService, CountsTheTimeInItsQueueFromTheArrivalOfTheBody) {
  ServerOptions server;
  server.limits.queue_s = 2;
  start({.max_running = 1}, server);
  const auto first = ask(post("/v1/completions", numbers(100)));
  while (engine_->stats().requests_running == 0) engine_->step();
  std::unique_lock closed(gate_);
  const auto before = ask_and_hold(post("/tokenize", {{"prompt", "hello"}}));
  ASSERT_EQ(before->wait().status, 200);
  const auto second = ask(post("/v1/completions", numbers(1)));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  closed.unlock();
  ask(post("/tokenize", {{"prompt", "hello"}}))->wait();  // behind it: it has been handed over
  seconds_ = 1.95;                                        // 2.05 since it came
  while (second->status() == 0) engine_->step();
  EXPECT_EQ(second->wait().status, 503) << second->wait().body;
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
  for (const auto& [seconds, late, word, status, code] : {std::tuple(4, second, "waited", 503, "queue_timed_out"),
                                                          std::tuple(10, first, "was there", 504, "timed_out")}) {
    EXPECT_EQ(late->status(), 0);
    seconds_ = seconds;
    while (late->status() == 0) engine_->step();
    const json error = json::parse(late->wait().body).at("error");
    EXPECT_EQ(late->wait().status, status);
    EXPECT_EQ(error.at("code"), code);
    EXPECT_EQ(error.at("type"), "server_error") << "the server's clients try again";
    EXPECT_EQ(late->wait().headers,
              (status == 503 ? Headers{{"Retry-After", "1"}} : Headers{{"x-should-retry", "false"}}));
    EXPECT_NE(error.at("message").get<std::string>().find(word), std::string::npos) << error;
  }
  EXPECT_EQ(met(), (Met{{"queue-time", 1}, {"request-time", 1}}));
}

TEST_F(HttpService, CountsWhatALimitRefusesByThatLimit) {
  ServerOptions server;
  server.limits.json_depth = 3;
  server.limits.n = 6;
  server.limits.prompt_tokens = 280;  // more than the context of 256
  start({.max_running = 4}, server);
  EXPECT_EQ(met(), Met{});
  Met expected;
  const auto refused = [&](const std::string& limit, const std::string& path, const json& more) {
    json body = path == "/tokenize" ? json::object() : numbers(2);
    body.update(more);
    EXPECT_EQ(ask(post(path, body))->wait().status, 400) << more;
    if (!limit.empty()) ++expected[limit];
    EXPECT_EQ(met(), expected) << more;
  };
  const std::string completions = "/v1/completions";
  const auto ones = [](size_t count) { return json(std::vector<int>(count, 1)); };
  refused("max-json-depth", completions, {{"user", json::parse("[[[1]]]")}});
  refused("max-json-depth", "/tokenize", {{"prompt", json::parse("[[[1]]]")}});
  refused("max-prompt-tokens", completions, {{"prompt", ones(281)}});
  refused("max-prompt-tokens", completions, {{"prompt", ones(256)}});
  refused("max-n", completions, {{"n", 7}});
  refused("max-n", completions, {{"n", uint64_t{1} << 63}});
  refused("max-n", completions, {{"n", 3}, {"prompt", {ones(1), ones(1), ones(1)}}});
  refused("max-running", completions, {{"n", 5}});
  refused("kv-tokens", completions, {{"n", 4}, {"max_tokens", 100}});  // 260 tokens in a pool of 256
  refused("", completions, {{"n", 0}});
  refused("", completions, {{"n", "many"}});
  refused("", completions, {{"prompt", json::array()}});
  refused("", completions, {{"temperature", 101}});
}

}  // namespace
}  // namespace weft::serve::http
