#include "serve/http/access.h"

#include <gtest/gtest.h>

#include "serve/http/failure.h"
#include "weft/error.h"

namespace weft::serve::http {
namespace {

struct AccessTest : ::testing::Test {
  ServerOptions options;
  HttpRequest head{.method = "GET", .path = "/v1/models", .headers = {{"host", "localhost:8080"}}, .body = {}};
  int status() const {
    try {
      Access(options).check(head);
      return 200;
    } catch (const Failure& failure) {
      return failure.status;
    }
  }
};

TEST_F(AccessTest, HasARouteForEachModel) {
  for (const auto& [path, wanted] :
       {std::pair("/v1/models/a", 200), std::pair("/v1/models/org/a", 200), std::pair("/v1/models/org%2Fa", 200),
        std::pair("/v1/models/", 404), std::pair("/v1/modelsa", 404), std::pair("/metrics/a", 404)}) {
    head.path = path;
    EXPECT_EQ(status(), wanted) << path;
  }
  options.api_keys = {"secret"};
  head.path = "/v1/models/a";
  EXPECT_EQ(status(), 401);
}

TEST_F(AccessTest, KnowsItselfByLoopbackNamesAndThoseGiven) {
  for (const char* host : {"localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:80"}) {
    head.headers["host"] = host;
    EXPECT_EQ(status(), 200) << host;
  }
  for (const char* host : {"", "evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil"}) {
    head.headers["host"] = host;
    EXPECT_EQ(status(), 403) << host;
  }
  options.host_names = {"Weft.Example"};
  head.headers["host"] = "weft.example:443";
  EXPECT_EQ(status(), 200);
  options.host = "0.0.0.0";
  head.headers["host"] = "10.1.2.3:8080";
  EXPECT_EQ(status(), 200);
  head.headers["host"] = "evil.example";
  EXPECT_EQ(status(), 403);
  head.local = true;
  EXPECT_EQ(status(), 200);
}

TEST_F(AccessTest, RefusesPagesOfElsewhere) {
  head.headers["origin"] = "http://localhost:8080";
  EXPECT_EQ(status(), 200);
  for (const char* origin : {"http://evil.example", "null", "http://localhost:9999", "file://"}) {
    head.headers["origin"] = origin;
    EXPECT_EQ(status(), 403) << origin;
  }
}

TEST_F(AccessTest, LetsPagesOfAllowedOriginsIn) {
  const auto said = [&](int answered, const std::string& name) {
    std::string value;
    for (const auto& [each, text] : Access(options).headers_for(head, answered))
      if (each == name) value = text;
    return value;
  };
  options.api_keys = {"secret"};
  options.allowed_origins = {"https://Example.org", "null"};
  head.headers["authorization"] = "Bearer secret";
  for (const char* origin : {"https://example.org", "null"}) {
    head.headers["origin"] = origin;
    EXPECT_EQ(status(), 200) << origin;
    EXPECT_EQ(said(429, "Access-Control-Allow-Origin"), origin) << "an error is read, too";
    EXPECT_EQ(said(200, "Vary"), "Origin");
  }
  for (const char* origin : {"http://example.org", "https://example.org:8443", "https://example.org.evil"}) {
    head.headers["origin"] = origin;
    EXPECT_EQ(status(), 403) << origin;
    EXPECT_EQ(said(403, "Access-Control-Allow-Origin"), "") << origin;
  }
  // A browser asks first, without a key.
  head = {.method = "OPTIONS", .path = "/v1/completions", .headers = {{"host", "localhost"}}, .body = {}};
  EXPECT_EQ(status(), 401);
  head.headers["origin"] = "https://example.org";
  head.headers["access-control-request-method"] = "POST";
  head.headers["access-control-request-headers"] = "authorization, x-stainless-os";
  EXPECT_EQ(status(), 200);
  EXPECT_EQ(said(204, "Access-Control-Allow-Methods"), "GET, HEAD, POST, OPTIONS");
  EXPECT_EQ(said(204, "Access-Control-Allow-Headers"), "authorization, x-stainless-os");
  head.headers["host"] = "evil.example";
  EXPECT_EQ(status(), 403) << "a name that a page points here is no way round";
  head.headers["host"] = "localhost";
  head.headers["origin"] = "https://evil.example";
  EXPECT_EQ(status(), 403);
  options.allowed_origins = {"*"};
  EXPECT_EQ(status(), 200);
  EXPECT_EQ(said(204, "Access-Control-Allow-Origin"), "*");
  for (const char* none : {"", "example.org", "https://", "https://example.org/", "https://a.example,https://b.example",
                           "https://*.example.org?"}) {
    options.allowed_origins = {none};
    EXPECT_THROW(Access{options}, Error) << none;
  }
}

TEST_F(AccessTest, AsksForAKeyButForThePageAndHealth) {
  options.api_keys = {"secret", "other"};
  EXPECT_EQ(status(), 401);
  for (const char* wrong :
       {"", "secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secret2", "Basic secret", "Bearer ecret"}) {
    head.headers["authorization"] = wrong;
    EXPECT_EQ(status(), 401) << wrong;
  }
  head.headers["authorization"] = "bearer other";
  EXPECT_EQ(status(), 200);
  EXPECT_EQ(Access(options).key_of(head), "other");
  head.headers.erase("authorization");
  for (const char* open : {"/", "/health", "/ready"}) {
    head.path = open;
    EXPECT_EQ(status(), 200) << open;
  }
  head.path = "/metrics";
  EXPECT_EQ(status(), 401);
  head.path = "/nowhere";
  EXPECT_EQ(status(), 401) << "who has no key learns of no path";
}

TEST_F(AccessTest, ChecksPathMethodAndContentType) {
  head.path = "/nowhere";
  EXPECT_EQ(status(), 404);
  head.path = "/v1/completions";
  EXPECT_EQ(status(), 405);
  head.method = "POST";
  EXPECT_EQ(status(), 415);
  for (const char* other : {"text/plain", "application/json-seq", "application/json x", " ; application/json", " "}) {
    head.headers["content-type"] = other;
    EXPECT_EQ(status(), 415) << other;
  }
  for (const char* type :
       {"application/json", "Application/JSON; charset=utf-8", "application/json \t; charset=utf-8"}) {
    head.headers["content-type"] = type;
    EXPECT_EQ(status(), 200) << type;
  }
}

TEST(Loopback, IsOnlyWhatNobodyElseReaches) {
  for (const char* host : {"localhost", "127.0.0.1", "127.8.8.8", "::1"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.evil.example", ""})
    EXPECT_FALSE(is_loopback(host)) << host;
}

}  // namespace
}  // namespace weft::serve::http
