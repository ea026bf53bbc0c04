// What HTTP asks for beside the routes: methods, versions, targets, limits of a head.
#include "tests/serve/http/running.h"

namespace weft::serve::http {
namespace {

Reply ask(const Running& running, const std::string& bytes, bool to_head = false) {
  Client client(running.port());
  client.send(bytes);
  return client.read(to_head);
}

std::string code_of(const Reply& reply) { return reply.json().at("error").at("code"); }

TEST(HttpServer, AnswersHeadAsGetWithoutItsBody) {
  Running running;
  for (const std::string path : {"/", "/health", "/ready", "/v1/models"}) {
    Client client(running.port());
    Reply get = client.get(path);
    client.send("HEAD " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    Reply head = client.read(true);
    EXPECT_EQ(head.status, 200) << path;
    for (Reply* reply : {&get, &head}) reply->headers.erase("content-security-policy");  // has a number of its own

    EXPECT_EQ(head.headers, get.headers) << path;
    EXPECT_EQ(head.header("content-length"), std::to_string(get.body.size()));
    EXPECT_EQ(client.get("/health").status, 200) << "no byte of a body stands before it";
  }
  Client client(running.port());
  client.send("HEAD /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read(true).status, 404);
  EXPECT_TRUE(client.at_end()) << "an error has no body, either";
}

TEST(HttpServer, SaysWhichMethodsAPathHas) {
  Running running;
  Client client(running.port());
  const Reply refused = client.get("/v1/completions");
  EXPECT_EQ(refused.status, 405);
  EXPECT_EQ(refused.header("allow"), "POST, OPTIONS");
  const Reply page = ask(running, "DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(page.status, 405);
  EXPECT_EQ(page.header("allow"), "GET, HEAD, OPTIONS");
  Client other(running.port());
  for (const std::string target : {"/v1/models", "/v1/completions", "*"}) {
    other.send("OPTIONS " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const Reply options = other.read();
    EXPECT_EQ(options.status, 204) << target;
    EXPECT_NE(options.header("allow").find("OPTIONS"), std::string::npos);
    EXPECT_EQ(options.headers.count("content-length") + options.headers.count("content-type"), 0u);
  }
}

// HAProxy's check, as it is without a word and as people write it.
TEST(HttpServer, AnswersHttp10WithoutAHost) {
  Running running;
  EXPECT_EQ(ask(running, "OPTIONS / HTTP/1.0\r\n\r\n").status, 204);
  for (const std::string more : {"", "Connection: close\r\n", "Host: localhost\r\n"}) {
    Client client(running.port());
    client.send("GET /ready HTTP/1.0\r\n" + more + "\r\n");
    const Reply reply = client.read();
    EXPECT_EQ(reply.status, 200) << more << reply.body;
    EXPECT_EQ(reply.header("connection"), "close");
    EXPECT_TRUE(client.at_end());
  }
  Client kept(running.port());
  for (int i = 0; i < 2; ++i) {
    kept.send("GET /ready HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    const Reply reply = kept.read();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.header("connection"), "keep-alive");
  }
  EXPECT_EQ(ask(running, "GET /ready HTTP/1.0\r\nHost: evil.example\r\n\r\n").status, 403);
  EXPECT_EQ(ask(running, "GET /ready HTTP/1.0\r\nOrigin: http://evil.example\r\n\r\n").status, 403);
  const Reply newer = ask(running, "GET /ready HTTP/1.1\r\n\r\n");
  EXPECT_EQ(newer.status, 400);
  EXPECT_EQ(code_of(newer), "bad_http");
  EXPECT_EQ(ask(running, "GET /ready HTTP/1.1\r\nHost: localhost:1\r\nHost: evil.example\r\n\r\n").status, 400);
}

TEST(HttpServer, StreamsToHttp10UntilTheConnectionEnds) {
  Running running;
  const std::string body = story(5, true).dump();
  const auto post = [&](const std::string& version) {
    return "POST /v1/completions HTTP/" + version +
           "\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: keep-alive\r\nExpect: "
           "100-continue\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  Client client(running.port());
  client.send(post("1.0"));
  const Reply reply = client.read();
  EXPECT_EQ(reply.status, 200) << "no 100 before it";
  EXPECT_EQ(reply.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(reply.header("connection"), "close");
  ASSERT_FALSE(reply.events.empty());
  EXPECT_EQ(reply.events.back(), "[DONE]");
  EXPECT_TRUE(reply.body.starts_with("data: ")) << reply.body;
  Client newer(running.port());
  newer.send(post("1.1"));
  EXPECT_EQ(newer.read().status, 100);
  EXPECT_EQ(newer.read().events.size(), reply.events.size());
  EXPECT_EQ(ask(running,
                "POST /tokenize HTTP/1.0\r\nContent-Type: application/json\r\nTransfer-Encoding: "
                "chunked\r\n\r\n0\r\n\r\n")
                .status,
            400);
}

TEST(HttpServer, TakesTargetsAndLinesAsClientsWriteThem) {
  Running running;
  Client client(running.port());
  const std::string port = std::to_string(running.port());
  for (const std::string& target :
       {"http://localhost:" + port + "/v1/models", std::string("http://127.0.0.1/v1/models"),
        std::string("HTTP://LOCALHOST/v1/models?x=1"), std::string("/v1/models?a=b&c")}) {
    client.send("\r\n\r\nGET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const Reply reply = client.read();
    EXPECT_EQ(reply.status, 200) << target << reply.body;
  }
  client.send("GET http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read().header("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(ask(running, "GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 403)
      << "the target's name counts, not the header's";
}

TEST(HttpServer, LetsPagesOfAllowedOriginsAskAndReadErrors) {
  ServerOptions options;
  options.allowed_origins = {"https://example.org"};
  options.api_keys = {"secret"};
  options.limits.body_bytes = 1000;
  Running running(options);
  Client client(running.port());
  const std::string origin = "Origin: https://example.org\r\n", key = "Authorization: Bearer secret\r\n";
  client.send("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + origin +
              "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n\r\n");
  const Reply asked = client.read();
  EXPECT_EQ(asked.status, 204);
  EXPECT_EQ(asked.header("access-control-allow-origin"), "https://example.org");
  EXPECT_EQ(asked.header("access-control-allow-headers"), "authorization");
  const Reply streamed = client.post("/v1/completions", story(2, true), key + origin);
  EXPECT_EQ(streamed.events.back(), "[DONE]");
  EXPECT_EQ(streamed.header("access-control-allow-origin"), "https://example.org");
  for (const auto& [bytes, status] :
       {std::pair(Client::post_text("/tokenize", "{}", origin), 401),
        std::pair(Client::post_text("/tokenize", "{}", key + origin), 400),
        std::pair(Client::post_text("/tokenize", std::string(2000, ' '), key + origin), 413)}) {
    const Reply refused = ask(running, bytes);
    EXPECT_EQ(refused.status, status);
    EXPECT_EQ(refused.header("access-control-allow-origin"), "https://example.org") << status;
  }
  EXPECT_EQ(ask(running, Client::post_text("/tokenize", "{}", key + "Origin: https://evil.example\r\n")).status, 403);
}

TEST(HttpServer, RefusesWhatItIsExpectedToDoBesideContinuing) {
  Running running;
  const Reply reply = ask(running, Client::post_text("/v1/completions", story(2).dump(), "Expect: 200-ok\r\n"));
  EXPECT_EQ(reply.status, 417);
  EXPECT_EQ(code_of(reply), "expectation_failed");
}

// Who waits for "100 Continue" need not send what is refused.
TEST(HttpServer, RefusesABodyThatIsTooLongBeforeItIsSent) {
  ServerOptions options;
  options.limits.body_bytes = 1000;
  options.api_keys = {"secret"};
  Running running(options);
  const auto expecting = [](const std::string& more) {
    return "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n" +
           more + "\r\n";
  };
  const std::string key = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(ask(running, expecting(key + "Content-Length: 1001\r\n")).status, 413);
  EXPECT_EQ(ask(running, expecting("Content-Length: 1001\r\n")).status, 401) << "who has no key learns of no limit";
  EXPECT_EQ(ask(running, expecting(key + "Content-Length: 1000\r\n")).status, 100);
  EXPECT_EQ(running.met(Limit::max_body), 1u);
}

// A page of another origin reads why, though its request was never read whole.
TEST(HttpServer, LetsPagesOfAllowedOriginsReadWhyAHeadIsRefused) {
  const std::string get = "GET /health HTTP/1.1\r\nHost: localhost\r\n", origin = "Origin: https://example.org\r\n",
                    filler = "X: " + std::string(5000, 'x') + "\r\n\r\n";
  for (const std::vector<std::string>& allowed : std::vector<std::vector<std::string>>{
           {"https://example.org"}, {"https://example.org", "https://other.example"}, {"*"}}) {
    ServerOptions options;
    options.limits.header_bytes = 4000;
    options.allowed_origins = allowed;
    Running running(options);
    const std::string expected = allowed[0] == "*" ? "*" : "https://example.org";
    const Reply known = ask(running, get + origin + filler);
    EXPECT_EQ(known.status, 431);
    EXPECT_EQ(known.header("access-control-allow-origin"), expected);
    const Reply broken = ask(running, get + origin + "no header\r\n\r\n");
    EXPECT_EQ(broken.status, 400);
    EXPECT_EQ(broken.header("access-control-allow-origin"), expected);
    const Reply unknown = ask(running, get + filler);  // the origin may stand behind what was read
    EXPECT_EQ(unknown.status, 431);
    EXPECT_EQ(unknown.header("access-control-allow-origin"), allowed.size() == 1 ? expected : "");
    EXPECT_EQ(ask(running, get + "Origin: https://evil.example\r\n" + filler).header("access-control-allow-origin"),
              allowed[0] == "*" ? "*" : "");
  }
}

// Whatever comes in one send, before anybody has asked for a key.
TEST(HttpServer, KeepsWhatStandsBesideABodyWithinTheLimitOfAHeader) {
  ServerOptions options;
  options.limits.header_bytes = 4000;
  options.api_keys = {"secret"};
  Running running(options);
  std::string lines;
  for (int i = 0; i < 400000; ++i) lines += "a:\r\n";
  const std::string get = "GET /health HTTP/1.1\r\nHost: localhost\r\n", key = "Authorization: Bearer secret\r\n";
  const std::string chunked = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + key +
                              "Transfer-Encoding: chunked\r\n\r\n";
  const std::string big(1 << 20, 'x');
  std::string extensions;
  for (int i = 0; i < 40000; ++i) extensions += "1;" + std::string(100, 'x') + "\r\n \r\n";
  std::string line_ends;
  for (int i = 0; i < 4000; ++i) line_ends += "\r\n";
  uint64_t met = 0;
  for (const auto& [what, bytes] : std::map<std::string, std::string>{
           {"many lines", get + lines + "\r\n"},
           {"a long line", get + "X: " + big + "\r\n\r\n"},
           {"a long name", get + big + ": 1\r\n\r\n"},
           {"a long target", "GET /" + big + " HTTP/1.1\r\nHost: localhost\r\n\r\n"},
           {"a long method", big},
           {"line ends before it", line_ends + get + "\r\n"},
           {"extensions of a chunk", chunked + "1;" + big + "\r\nx\r\n0\r\n\r\n"},
           {"extensions of many chunks", chunked + extensions + "0\r\n\r\n"},
           {"digits of a chunk's size", chunked + std::string(1 << 20, '0') + "\r\n\r\n"},
           {"a trailer", chunked + "0\r\nX: " + big + "\r\n\r\n"},
           {"lines of a trailer", chunked + "0\r\n" + lines + "\r\n"}}) {
    const Reply reply = ask(running, bytes);
    EXPECT_EQ(reply.status, 431) << what << " " << reply.body.substr(0, 200);
    EXPECT_EQ(running.met(Limit::max_header), ++met) << what;
  }
  const std::string fits = get + "X: " + std::string(4000 - get.size() - 7, 'x') + "\r\n\r\n";
  ASSERT_EQ(fits.size(), 4000u);
  EXPECT_EQ(ask(running, fits).status, 200);
  EXPECT_EQ(ask(running, get + "X: " + std::string(4000 - get.size() - 6, 'x') + "\r\n\r\n").status, 431);
  std::string small_chunks;
  for (int i = 0; i < 3000; ++i) small_chunks += "1\r\n \r\n";
  EXPECT_EQ(ask(running, chunked + "10\r\n{\"prompt\": \"hi\"}\r\n" + small_chunks + "0\r\nX: 1\r\n\r\n").status, 200);
}

}  // namespace
}  // namespace weft::serve::http
