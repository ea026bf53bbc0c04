#include "serve/http/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/check.h"
#include "serve/http/failure.h"

namespace weft::serve::http {
namespace {

constexpr const char *kReads = "GET, HEAD, OPTIONS", *kPosts = "POST, OPTIONS", *kAll = "GET, HEAD, POST, OPTIONS";

struct Route {
  std::string_view path;  // with all below it, where it ends with a slash
  const char* methods;
  bool open;  // without a key
};
constexpr Route kRoutes[] = {{"/", kReads, true},
                             {"/health", kReads, true},
                             {"/ready", kReads, true},
                             {"*", "OPTIONS", true},
                             {"/v1/models", kReads, false},
                             {"/v1/models/", kReads, false},
                             {"/metrics", kReads, false},
                             {"/inside", kReads, false},
                             {"/tokenize", kPosts, false},
                             {"/detokenize", kPosts, false},
                             {"/v1/completions", kPosts, false},
                             {"/v1/chat/completions", kPosts, false}};

bool is_of(const std::string& path, const Route& route) {
  const bool with_below = route.path.size() > 1 && route.path.ends_with('/');
  return with_below ? path.size() > route.path.size() && path.starts_with(route.path) : path == route.path;
}

// Null: there is none.
const Route* route_of(const std::string& path) {
  const auto found =
      std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& route) { return is_of(path, route); });
  return found == std::end(kRoutes) ? nullptr : found;
}

bool has_method(const Route& route, const std::string& method) {
  return (", " + std::string(route.methods) + ",").find(", " + method + ",") != std::string::npos;
}

// What a browser asks before a page of elsewhere may: it comes without a key.
bool is_preflight(const HttpRequest& head) {
  return head.method == "OPTIONS" && head.headers.contains("origin") &&
         head.headers.contains("access-control-request-method");
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// As long for any key of a length: how many characters agree shows nowhere.
bool equal_in_constant_time(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  return difference == 0;
}

// Without parameters, in small letters; blanks may stand before the semicolon.
std::string media_type(const std::string& content_type) {
  const std::string type = lower(content_type.substr(0, content_type.find(';')));
  return type.substr(0, type.find_last_not_of(" \t") + 1);
}

// Without the port, in small letters.
std::string name_of(const std::string& host) {
  if (host.starts_with('[')) return lower(host.substr(0, host.find(']') + 1));
  return lower(host.substr(0, host.find(':')));
}

// Scheme, host and port, and nothing behind them.
bool is_origin(const std::string& text) {
  const size_t host = text.find("://");
  return text == "*" || text == "null" ||
         (host != std::string::npos && host > 0 && host + 3 < text.size() &&
          text.find_first_of("/?#@, ", host + 3) == std::string::npos);
}

bool is_address(const std::string& name) {
  return name.starts_with('[') || (!name.empty() && name.find_first_not_of("0123456789.") == std::string::npos);
}

}  // namespace

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || (host.starts_with("127.") && is_address(host));
}

Access::Access(const ServerOptions& options)
    : keys_(options.api_keys), any_address_(options.host == "0.0.0.0" || options.host == "::") {
  host_names_ = {"localhost", "127.0.0.1", "[::1]", lower(options.host), "[" + lower(options.host) + "]"};
  for (const std::string& name : options.host_names) host_names_.insert(lower(name));
  for (const std::string& origin : options.allowed_origins) {
    weft::check(is_origin(origin), ErrorCode::invalid_argument,
                "--allow-origin {}; allowed are * and origins without a path, such as https://example.org", origin);
    allowed_origins_.insert(lower(origin));
  }
}

bool Access::allows_origin(const std::string& origin) const {
  return allowed_origins_.contains("*") || allowed_origins_.contains(lower(origin));
}

bool Access::knows(const std::string& host_name) const {
  return host_names_.contains(host_name) || (any_address_ && is_address(host_name));
}

// A page of elsewhere must reach this server neither by a name that it points here nor by a script of its own. What
// names no host is no page: browsers always do.
void Access::check_host(const HttpRequest& head) const {
  const bool named = head.headers.contains("host");
  const std::string host = head.header("host");
  if (!head.local && ((!named && !head.http_1_0) || host.find(',') != std::string::npos))
    throw Failure(400, "bad_http",
                  fmt::format("Host: HTTP/1.1 needs one; there {}", named ? "are several" : "is none"));
  if (!head.local && named && !knows(name_of(host)))
    throw Failure(403, "host_refused",
                  fmt::format("Host: {}; this server is not called so: start it with --host-name", shortened(host)));
  const std::string origin = lower(head.header("origin"));
  if (!origin.empty() && origin != "http://" + lower(host) && origin != "https://" + lower(host) &&
      !allows_origin(origin))
    throw Failure(403, "origin_refused",
                  fmt::format("Origin: {}; pages of elsewhere may not use this server: start it with --allow-origin",
                              shortened(origin)));
}

std::string Access::key_of(const HttpRequest& head) const {
  const std::string given = head.header("authorization");
  const std::string scheme = "bearer ";
  if (given.size() <= scheme.size() || lower(given.substr(0, scheme.size())) != scheme) return {};
  const std::string key = given.substr(scheme.size());
  std::string found;
  for (const std::string& known : keys_)
    if (equal_in_constant_time(known, key)) found = known;
  return found;
}

void Access::check(const HttpRequest& head) const {
  check_host(head);
  if (is_preflight(head)) return;
  // Beast takes a body of any other coding for none, and its bytes for the next request.
  const std::string coding = lower(head.header("transfer-encoding"));
  if (!coding.empty() && (coding != "chunked" || head.http_1_0))
    throw Failure(400, "bad_http", "Transfer-Encoding: allowed is chunked, with HTTP/1.1");
  if (const std::string expected = lower(head.header("expect"));
      !expected.empty() && expected != "100-continue" && !head.http_1_0)
    throw Failure(417, "expectation_failed", fmt::format("Expect: {}; allowed is 100-continue", shortened(expected)));
  const Route* route = route_of(head.path);
  const bool open = route != nullptr && route->open;
  if (!open && !keys_.empty() && key_of(head).empty())
    throw Failure(401, "invalid_api_key", "Authorization: a key of this server is needed, as \"Bearer KEY\"");
  if (route == nullptr) throw Failure(404, "not_found", fmt::format("{}: there is no such path", shortened(head.path)));
  if (!has_method(*route, head.method))
    throw Failure(405, "method_not_allowed",
                  fmt::format("{} {}: allowed are {}", shortened(head.method), head.path, route->methods));
  if (head.method == "POST") {
    if (media_type(head.header("content-type")) != "application/json")
      throw Failure(415, "unsupported_media_type", "Content-Type: application/json is needed");
  }
}

Headers Access::headers_for(const HttpRequest& head, int status) const {
  Headers headers;
  const bool preflight = is_preflight(head);
  if (status == 405 || (head.method == "OPTIONS" && status == 204)) {
    const Route* route = preflight ? nullptr : route_of(head.path);  // who has no key learns of no path
    headers.emplace_back("Allow", route == nullptr || head.path == "*" ? kAll : route->methods);
  }
  if (allowed_origins_.empty()) return headers;
  const std::string origin = head.header("origin");
  const bool any = allowed_origins_.contains("*");
  if (!any) headers.emplace_back("Vary", "Origin");
  // A head that was refused may have had an origin behind what was read of it.
  const bool of_one = origin.empty() && (any || allowed_origins_.size() == 1);
  if (!of_one && (origin.empty() || !allows_origin(origin))) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : of_one ? *allowed_origins_.begin() : origin);
  if (preflight) {
    headers.emplace_back("Access-Control-Allow-Methods", kAll);
    if (const std::string asked = head.header("access-control-request-headers"); !asked.empty())
      headers.emplace_back("Access-Control-Allow-Headers", asked);
    headers.emplace_back("Access-Control-Max-Age", "600");
  } else {
    headers.emplace_back("Access-Control-Expose-Headers", "Retry-After");
  }
  return headers;
}

}  // namespace weft::serve::http
