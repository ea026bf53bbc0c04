// Clients that leave before their answer ends, whatever they sent behind their request.
#include <list>

#include "tests/serve/http/running.h"

namespace weft::serve::http {
namespace {

constexpr int64_t kBodyBytes = 256 << 10;
const std::string kGet = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

// Takes seconds, and the places of all that run.
json long_story(bool stream) {
  json body = story(480, stream);
  body["n"] = 64;
  return body;
}

// Until the engine has `holds`; false: it never had.
template <class Holds>
bool until(Running& running, Holds holds) {
  for (int i = 0; i < 1000; ++i) {
    if (holds(running.engine().stats())) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

struct Leaving : ::testing::TestWithParam<std::tuple<bool, bool, std::string>> {
  static ServerOptions options() {
    ServerOptions options;
    options.limits.body_bytes = kBodyBytes;
    options.limits.unread_s = 600;
    return options;
  }
  static EngineOptions engine_options() {
    EngineOptions options;
    options.max_running = 64;
    options.kv_tokens = 64 * 512;
    return options;
  }
  // What came behind the request, in a segment of its own.
  std::string behind() const {
    const std::string& what = std::get<2>(GetParam());
    if (what == "nothing") return {};
    if (what == "a line's end") return "\r\n";
    if (what == "a request") return kGet;
    if (what == "a body") return Client::post_text("/tokenize", std::string(kBodyBytes / 2, ' '));
    return Client::post_text("/tokenize", std::string(kBodyBytes, ' ')) +
           std::string(20 << 10, ' ');  // more than is read ahead, and room for its end in the system's buffer
  }
  void leave(Client& client) const {
    if (!behind().empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      client.send(behind());
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    std::get<1>(GetParam()) ? client.reset() : client.finish();
  }
};

TEST_P(Leaving, EndsARequestThatRuns) {
  Running running(options(), engine_options());
  Client client(running.port());
  client.send(Client::post_text("/v1/completions", long_story(std::get<0>(GetParam())).dump()));
  ASSERT_TRUE(until(running, [](const EngineStats& stats) { return stats.requests_running == 1; }));
  leave(client);
  running.expect_idle();
  EXPECT_EQ(running.engine().stats().requests_cancelled, 1u);
}

TEST_P(Leaving, EndsARequestThatWaits) {
  Running running(options(), engine_options());
  Client first(running.port()), client(running.port());
  json pausing = much_to_read();  // it is never read, and goes on until its client leaves
  pausing["n"] = 64;
  first.send(Client::post_text("/v1/completions", pausing.dump()));
  ASSERT_TRUE(until(running, [](const EngineStats& stats) { return stats.requests_running == 1; }));
  client.send(Client::post_text("/v1/completions", long_story(std::get<0>(GetParam())).dump()));
  // Its body counts as more tokens than it has until it is read.
  ASSERT_TRUE(until(running, [](const EngineStats& stats) {
    return stats.requests_waiting == 1 && stats.tokens_waiting > 0 && stats.tokens_waiting < 12;
  }));
  leave(client);
  EXPECT_TRUE(until(running, [](const EngineStats& stats) { return stats.requests_cancelled == 1; }));
  EXPECT_EQ(running.engine().stats().requests_waiting, 0);
  EXPECT_EQ(running.engine().stats().requests_running, 1);
}

INSTANTIATE_TEST_SUITE_P(HttpServer, Leaving,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool(),
                                            ::testing::Values("nothing", "a line's end", "a request", "a body",
                                                              "more than is read ahead")),
                         [](const auto& leaving) {
                           std::string what = std::get<2>(leaving.param);
                           std::erase_if(what, [](char c) { return c == '\'' || c == ' '; });
                           return std::string(std::get<0>(leaving.param) ? "Stream" : "Whole") +
                                  (std::get<1>(leaving.param) ? "Reset" : "Finish") + what;
                         });

TEST(HttpServer, AnswersWhoStaysAllThatItSentInTurn) {
  ServerOptions options;
  options.limits.body_bytes = kBodyBytes;
  Running running(options);
  Client client(running.port());
  const std::string text = R"({"prompt": "hello"})" + std::string(kBodyBytes * 3 / 4, ' ');
  client.send(Client::post_text("/v1/completions", story(200).dump()));
  std::thread sender([&] {  // more than is read ahead
    client.send("\r\n" + kGet);
    for (int i = 0; i < 4; ++i) client.send(Client::post_text("/tokenize", text));
    client.send(Client::post_text("/v1/completions", story(3).dump()));
  });
  EXPECT_EQ(client.read().json().at("usage").at("completion_tokens"), 200);
  EXPECT_EQ(client.read().json().at("status"), "ok");
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(client.read().json().contains("tokens"));
  EXPECT_EQ(client.read().json().at("usage").at("completion_tokens"), 3);
  sender.join();
}

}  // namespace
}  // namespace weft::serve::http
