// The server, sockets and all, over real weights.
#include <gtest/gtest.h>

#include <chrono>
#include <list>
#include <thread>

#include "base/clock.h"
#include "decode/generate.h"
#include "tests/serve/http/running.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temp_folder.h"

namespace weft::serve::http {
namespace {

// Where an answer that nobody reads waits: between ends of such a socket the system holds a tenth of what it does by
// TCP, which an engine under a sanitizer is long to fill.
std::string stalling_socket(const testing::TempFolder& folder) {
  return testing::kUnderSanitizer ? folder.path("socket") : "";
}

std::string text_of(const Reply& reply) { return reply.json().at("choices").at(0).at("text"); }

TEST(HttpServer, AnswersWhatTheModelAnswersAlone) {
  Running running;
  ForwardPass forward(running.file(), {.precision = Precision::exact, .max_tokens = 512});
  decode::Generator generator(forward, running.tokenizer(), {.temperature = 0.f}, {}, 0);
  const auto alone = generator.answer(forward.add_sequence(), running.tokenizer().encode("Once upon a time"),
                                      {.max_tokens = 30,
                                       .context = 512,
                                       .on_token = [](int32_t, std::string_view) {},
                                       .stopped = [] { return false; }});
  Client client(running.port());
  const Reply reply = client.post("/v1/completions", story(30));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(text_of(reply), alone.text);
  EXPECT_EQ(reply.json().at("usage").at("completion_tokens"), 30);
  EXPECT_EQ(reply.json().at("choices").at(0).at("finish_reason"), "length");
}

TEST(HttpServer, StreamsTheSameTextAsItAnswersAtOnce) {
  Running running;
  Client client(running.port());
  const std::string whole = text_of(client.post("/v1/completions", story(25)));
  json body = story(25, true);
  body["stream_options"] = {{"include_usage", true}};
  const Reply reply = client.post("/v1/completions", body);
  ASSERT_GE(reply.events.size(), 3u) << reply.body;
  EXPECT_EQ(reply.events.back(), "[DONE]");
  std::string text;
  for (size_t i = 0; i + 2 < reply.events.size(); ++i)
    text += json::parse(reply.events[i]).at("choices").at(0).at("text").get<std::string>();
  EXPECT_EQ(text, whole);
  EXPECT_EQ(json::parse(reply.events[reply.events.size() - 2]).at("usage").at("completion_tokens"), 25);
}

TEST(HttpServer, StreamsAChatAsClientsReadIt) {
  Running running;
  Client client(running.port());
  const Reply reply = client.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "Once"}}}},
                                                           {"max_tokens", 5},
                                                           {"stream", true},
                                                           {"temperature", 0},
                                                           {"n", 2}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  int roles = 0, ends = 0;
  for (size_t i = 0; i + 1 < reply.events.size(); ++i) {
    const json event = json::parse(reply.events[i]);
    EXPECT_EQ(event.at("object"), "chat.completion.chunk");
    if (event.at("choices").at(0).at("delta").contains("role")) ++roles;
    if (!event.at("choices").at(0).at("finish_reason").is_null()) ++ends;
  }
  EXPECT_EQ(roles, 2);
  EXPECT_EQ(ends, 2);
}

TEST(HttpServer, AnswersManyClientsAtOnce) {
  Running running;
  const std::string expected = text_of(Client(running.port()).post("/v1/completions", story(20)));
  std::vector<std::thread> threads;
  std::vector<std::string> got(12);
  for (auto& text : got)
    threads.emplace_back([&] { text = text_of(Client(running.port()).post("/v1/completions", story(20))); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : got) EXPECT_EQ(text, expected);
  running.expect_idle();
}

// The engine's thread may let go of a connection last, while the sockets' thread counts the next one.
TEST(HttpServer, CountsConnectionsThatEndOnAnyThread) {
  Running running;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 30; ++j) EXPECT_EQ(Client(running.port()).post("/v1/completions", story(1)).status, 200);
    });
  for (std::thread& thread : threads) thread.join();
  running.expect_idle();
  Client client(running.port());
  std::string metrics;
  for (int i = 0; i < 100 && metrics.find("weft_connections 1\n") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // longer than the counts take to show
    metrics = client.get("/metrics").body;
  }
  EXPECT_NE(metrics.find("weft_connections 1\n"), std::string::npos) << metrics;
}

TEST(HttpServer, AnswersSeveralPromptsOfOneRequest) {
  Running running;
  Client client(running.port());
  const Reply reply =
      client.post("/v1/completions",
                  {{"prompt", {"Once", "The"}}, {"n", 2}, {"max_tokens", 4}, {"echo", true}, {"temperature", 0}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json choices = reply.json().at("choices");
  ASSERT_EQ(choices.size(), 4u);
  for (int i = 0; i < 4; ++i)
    EXPECT_TRUE(choices.at(static_cast<size_t>(i)).at("text").get<std::string>().starts_with(i < 2 ? "Once" : "The"))
        << choices;
}

TEST(HttpServer, ServesTheOtherRoutes) {
  Running running;
  Client client(running.port());
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(client.get("/ready").status, 200);
  EXPECT_EQ(client.get("/v1/models").json().at("data").at(0).at("id"), "stories");
  const Reply page = client.get("/");
  EXPECT_NE(page.headers.at("content-security-policy").find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(page.body.find("http://"), page.body.find("http://www.w3.org/2000/svg")) << "no outside asset";
  const json tokens = client.post("/tokenize", {{"prompt", "hello"}}).json();
  EXPECT_EQ(tokens.at("tokens"), running.tokenizer().encode("hello"));
  EXPECT_EQ(client.post("/detokenize", {{"tokens", tokens.at("tokens")}}).json().at("prompt"), "hello");
  EXPECT_EQ(client.post("/detokenize", {{"tokens", {99999}}}).json().at("error").at("code"), "invalid_token");
  client.post("/v1/completions", story(3));
  running.expect_idle();
  const std::string metrics = client.get("/metrics").body;
  for (const char* name :
       {"weft_requests_running 0\n", "weft_requests_waiting 0\n", "weft_output_tokens_total 3\n",
        "weft_time_to_first_token_seconds_count 1\n", "weft_http_responses_total{class=\"4xx\"} 1\n"})
    EXPECT_NE(metrics.find(name), std::string::npos) << name << metrics;
  EXPECT_TRUE(client.get("/inside").json().contains("prefixes"));
}

TEST(HttpServer, KeepsAConnectionAndTakesRequestsThatCameTogetherInTurn) {
  Running running;
  Client client(running.port());
  client.send(Client::post_text("/v1/completions", story(5).dump()) +
              Client::post_text("/v1/completions", story(7).dump()));
  EXPECT_EQ(client.read().json().at("usage").at("completion_tokens"), 5);
  EXPECT_EQ(client.read().json().at("usage").at("completion_tokens"), 7);
}

TEST(HttpServer, SendsContinueToThoseThatWaitForIt) {
  Running running;
  Client client(running.port());
  const std::string body = story(2).dump();
  const std::string text = Client::post_text("/v1/completions", body, "Expect: 100-continue\r\n");
  client.send(text.substr(0, text.size() - body.size()));
  EXPECT_EQ(client.read().status, 100);
  client.send(body);
  EXPECT_EQ(client.read().status, 200);
}

TEST(HttpServer, RefusesMalformedHttp) {
  Running running;
  const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  for (const std::string& bad : std::vector<std::string>{
           "nonsense\r\n\r\n", "GET / HTTP/3.0\r\n\r\n", "GET  / HTTP/1.1\r\n\r\n",
           post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
           post + "Content-Length: -1\r\n\r\n", post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
           post + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
           post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
           post + "Transfer-Encoding: identity\r\n\r\n", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
           post + "Content-Length: 99999999999999999999\r\n\r\n"}) {
    Client client(running.port());
    client.send(bad);
    const Reply reply = client.read();
    EXPECT_EQ(reply.status / 100, 4) << bad << reply.body;
    EXPECT_NE(reply.body.find("bad_http"), std::string::npos) << bad << reply.body;
    EXPECT_TRUE(client.at_end()) << bad;
  }
  EXPECT_EQ(Client(running.port()).get("/health").status, 200);
}

TEST(HttpServer, KeepsHeadersAndBodiesWithinTheirLimits) {
  ServerOptions options;
  options.limits.header_bytes = 2000;
  options.limits.body_bytes = 3000;
  Running running(options);
  EXPECT_EQ(Client(running.port()).get("/health", "X: " + std::string(4000, 'x') + "\r\n").status, 431);
  EXPECT_EQ(Client(running.port()).post("/tokenize", {{"prompt", std::string(4000, 'x')}}).status, 413);
  Client chunked(running.port());
  chunked.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n");
  for (int i = 0; i < 4; ++i) chunked.send("400\r\n" + std::string(1024, 'x') + "\r\n");
  EXPECT_EQ(chunked.read().status, 413);
  EXPECT_EQ(running.met(Limit::max_header), 1u);
  EXPECT_EQ(running.met(Limit::max_body), 2u);
}

TEST(HttpServer, EndsConnectionsThatAreTooSlow) {
  ServerOptions options;
  options.limits.header_s = options.limits.body_s = options.limits.idle_s = 1;
  Running running(options);
  Client silent(running.port()), half_head(running.port()), half_body(running.port()), idle(running.port());
  half_head.send("GET / HTTP/1.1\r\nHost:");
  half_body.send(Client::post_text("/tokenize", R"({"prompt": "hello"})").substr(0, 105));
  EXPECT_EQ(idle.get("/health").status, 200);
  for (Client* client : {&silent, &half_head, &half_body, &idle}) EXPECT_TRUE(client->at_end());
  EXPECT_EQ(running.met(Limit::header_time), 2u);
  EXPECT_EQ(running.met(Limit::body_time), 1u);
  EXPECT_EQ(running.met(Limit::idle_time), 1u);
}

TEST(HttpServer, EndsManyThatAreTooSlowTogether) {
  ServerOptions options;
  options.limits.header_s = 1;
  Running running(options);
  std::list<Client> silent;
  for (int i = 0; i < 100; ++i) silent.emplace_back(running.port());
  for (Client& client : silent) EXPECT_TRUE(client.at_end());
  const std::string metrics = Client(running.port()).get("/metrics").body;
  EXPECT_NE(metrics.find("\nweft_connections_timed_out_total 100\n"), std::string::npos) << metrics;
}

TEST(HttpServer, RefusesConnectionsBeyondItsLimit) {
  ServerOptions options;
  options.limits.connections = 2;
  Running running(options);
  Client first(running.port()), second(running.port());
  EXPECT_EQ(first.get("/health").status + second.get("/health").status, 400);
  Client third(running.port());
  EXPECT_EQ(third.read().status, 503);
  EXPECT_EQ(running.met(Limit::max_connections), 1u);
  first.close();
  Reply reply;
  for (int i = 0; i < 100 && reply.status != 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    reply = Client(running.port()).get("/health");
  }
  EXPECT_EQ(reply.status, 200);
}

TEST(HttpServer, Answers429WhileItsQueueIsFull) {
  EngineOptions engine;
  engine.max_running = 1;
  engine.max_queued = 1;
  Running running({}, engine);
  std::vector<std::unique_ptr<Client>> clients;
  int refused = 0;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<Client>(running.port()));
    clients.back()->send(Client::post_text("/v1/completions", story(400).dump()));
  }
  bool was_full = false;  // while the first one runs, once the others have arrived
  for (int tries = 0; tries < 5000 && !was_full; ++tries) was_full = Client(running.port()).get("/ready").status == 429;
  EXPECT_TRUE(was_full);
  for (auto& client : clients) {
    const Reply reply = client->read();
    if (reply.status != 429) continue;
    ++refused;
    EXPECT_EQ(reply.json().at("error").at("code"), "queue_full");
    EXPECT_EQ(reply.headers.at("retry-after"), "1");
  }
  EXPECT_GE(refused, 1);
  // Whatever came too much, and nothing of what asked whether it would be.
  const std::string metrics = Client(running.port()).get("/metrics").body;
  EXPECT_NE(metrics.find("weft_requests_refused_total " + std::to_string(refused) + "\n"), std::string::npos)
      << metrics;
  EXPECT_EQ(running.met(Limit::max_queued), static_cast<uint64_t>(refused));
}

TEST(HttpServer, EndsTheRequestsOfClientsThatLeaveInAnyPhase) {
  EngineOptions engine;
  engine.max_running = 4;
  Running running({}, engine);
  for (int i = 0; i < 60; ++i) {
    Client client(running.port());
    const std::string text = Client::post_text("/v1/completions", story(480, i % 2 == 0).dump());
    client.send(text.substr(0, i % 3 == 0 ? text.size() : text.size() * static_cast<size_t>(i) / 60));
    if (i % 4 != 0) std::this_thread::sleep_for(std::chrono::milliseconds(i % 7));
  }
  running.expect_idle();
  EXPECT_EQ(Client(running.port()).post("/v1/completions", story(3)).status, 200);
}

TEST(HttpServer, PausesAnAnswerThatNobodyReadsAndEndsItInTheEnd) {
  const testing::TempFolder folder;
  ServerOptions options;
  options.unix_socket = stalling_socket(folder);
  options.limits.unread_s = 5;
  options.limits.unread_bytes = 1 << 16;  // which a slow engine makes in less time than that
  Running running(options);
  Client client = running.slow_client();
  client.send(Client::post_text("/v1/completions", much_to_read().dump()));
  running.expect_stall();
  running.expect_idle();
  EXPECT_EQ(running.engine().stats().requests_cancelled, 1u);
  EXPECT_EQ(running.met(Limit::max_unread), 1u);
  EXPECT_EQ(running.met(Limit::unread_time), 1u);
}

TEST(HttpServer, AsksForAKey) {
  ServerOptions options;
  options.api_keys = {"secret"};
  Running running(options);
  Client client(running.port());
  const Reply refused = client.post("/v1/completions", story(3));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(Client(running.port()).post("/v1/completions", story(3), "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(Client(running.port()).get("/").status, 200);
  EXPECT_EQ(Client(running.port()).get("/metrics").status, 401);
}

TEST(HttpServer, LetsStreamsFinishAfterTheFirstSignalAndTakesNothingNew) {
  ServerOptions options;
  options.drain_s = 600;
  Running running(options);
  Client client(running.port()), idle(running.port());
  EXPECT_EQ(idle.get("/ready").status, 200);
  client.send(Client::post_text("/v1/completions", story(200, true).dump()));
  std::string begun;
  ASSERT_TRUE(client.read_some(begun));
  running.server().stop();
  EXPECT_TRUE(idle.at_end()) << "an idle connection ends";
  running.wait_for_end();
  std::string rest = begun;
  while (client.read_some(rest)) {
  }
  EXPECT_NE(rest.find("[DONE]"), std::string::npos);
}

TEST(HttpServer, EndsStreamsThatGoOnWhenTheTimeOfItsDrainIsOver) {
  const testing::TempFolder folder;
  ServerOptions options;
  options.unix_socket = stalling_socket(folder);
  options.drain_s = 1;
  options.limits.unread_s = 600;
  Running running(options);
  Client client = running.slow_client();
  client.send(Client::post_text("/v1/completions", much_to_read().dump()));
  running.expect_stall();  // it goes on until somebody reads
  const auto begin = Clock::now();
  running.server().stop();
  running.wait_for_end();
  EXPECT_GE(seconds_since(begin), 1);
  std::string all;
  while (client.read_some(all)) {
  }
  EXPECT_EQ(all.find("[DONE]"), std::string::npos);
  running.expect_idle();
  EXPECT_EQ(running.engine().stats().requests_cancelled, 1u);
}

TEST(HttpServer, RefusesOptionsThatNoServerCanHave) {
  const auto refusal = [](const auto& change) {
    ServerOptions options;
    change(options);
    try {
      check_options(options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal([](ServerOptions&) {}), "");
  EXPECT_EQ(refusal([](ServerOptions& o) { o.unix_socket = "/" + std::string(106, 'a'); }), "");
  EXPECT_NE(refusal([](ServerOptions& o) {
              o.unix_socket = "/" + std::string(119, 'a');
            }).find("up to 107 bytes, this one has 120"),
            std::string::npos);
  EXPECT_EQ(refusal([](ServerOptions& o) { o.limits.header_bytes = 0; }),
            "invalid_argument: --max-header = 0; allowed are 256 to 1073741824 bytes");
  EXPECT_NE(refusal([](ServerOptions& o) { o.limits.header_s = 0; }), "");
  EXPECT_NE(refusal([](ServerOptions& o) { o.limits.idle_s = INT64_MAX; }), "") << "beyond what a clock can add";
  EXPECT_NE(refusal([](ServerOptions& o) { o.allowed_origins = {"example.org/page"}; }).find("--allow-origin"),
            std::string::npos);
}

TEST(HttpServer, ListensOnAUnixSocketForThisUserAlone) {
  const testing::TempFolder folder;
  ServerOptions options;
  options.unix_socket = folder.path("socket");
  Running running(options);
  EXPECT_EQ(Client(options.unix_socket).get("/health").status, 200);
  EXPECT_EQ(running.server().url(), "unix:" + options.unix_socket);
}

}  // namespace
}  // namespace weft::serve::http
