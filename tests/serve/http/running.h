// `weft serve` within the test's process: a small model, its engine and its server, each on a thread of its own.
//
//   Running running(options);
//   Client(running.port()).post("/v1/completions", story(20));
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "serve/http/server.h"
#include "tests/serve/http/client.h"

namespace weft::serve::http {

using nlohmann::json;
using testing::Client;
using testing::Reply;

// A model, an engine and its thread, a server and its thread; all of it ends with the test.
class Running {
 public:
  explicit Running(const ServerOptions& options = {}, const EngineOptions& engine = {})
      : engine_(file_, tokenizer_, with_defaults(engine)),
        service_(engine_, tokenizer_, &template_, named(options)),
        server_(service_, named(options)),
        engine_thread_([this] { engine_.run(); }),
        server_thread_([this] { server_.run(); }) {}
  ~Running() {
    if (server_thread_.joinable()) {
      server_.stop();
      server_.stop();
      server_thread_.join();
    }
    engine_.stop();
    engine_thread_.join();
  }
  int port() const {
    const std::string url = server_.url();
    return std::stoi(url.substr(url.rfind(':') + 1));
  }
  // A client of which the system holds little that it leaves unread.
  Client slow_client() const {
    const std::string url = server_.url();
    return url.starts_with("unix:") ? Client(url.substr(5)) : Client(port(), 4096);
  }
  Engine& engine() { return engine_; }
  uint64_t met(Limit limit) const { return service_.limits_met().count(limit); }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const ModelFile& file() const { return file_; }
  Server& server() { return server_; }
  void wait_for_end() { server_thread_.join(); }
  // Until an answer has paused.
  void expect_stall() const {
    for (int i = 0; i < 15000; ++i) {  // sockets take megabytes, which is long under a sanitizer
      const std::string metrics = slow_client().get("/metrics").body;
      if (metrics.find("\nweft_stalls_total 0\n") == std::string::npos) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    FAIL() << "nothing pauses";
  }
  // Until the engine has nothing left; every page is free or cached then.
  void expect_idle() {
    for (int i = 0; i < 6000; ++i) {
      const EngineStats stats = engine_.stats();
      if (stats.requests_running + stats.requests_waiting == 0) {
        EXPECT_EQ(stats.pages_free + stats.pages_evictable, stats.pages);
        EXPECT_EQ(stats.pages_evictable, stats.pages_cached);
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "requests go on";
  }

 private:
  static EngineOptions with_defaults(EngineOptions options) {
    options.forward.precision = Precision::exact;
    if (options.kv_tokens == 0) options.kv_tokens = 8192;
    return options;
  }
  static ServerOptions named(ServerOptions options) {
    options.port = 0;
    options.model_name = "stories";
    return options;
  }
  const ModelFile file_{WEFT_TEST_DATA "/stories260K.gguf"};
  const Tokenizer tokenizer_{file_};
  const ChatTemplate template_{"{% for m in messages %}{{ m.content }}{% endfor %}"};
  Engine engine_;
  Service service_;
  Server server_;
  std::thread engine_thread_, server_thread_;
};

inline json story(int tokens, bool stream = false) {
  return {{"prompt", "Once upon a time"},
          {"max_tokens", tokens},
          {"temperature", 0},
          {"stream", stream},
          {"ignore_eos", true}};
}

// More than the system's buffers of a connection hold, and no event more than a client may leave unread.
inline json much_to_read() {
  json body = story(480, true);
  body["n"] = 16;
  body["logprobs"] = 20;
  return body;
}

}  // namespace weft::serve::http
