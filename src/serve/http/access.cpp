#include "serve/http/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "serve/http/failure.h"

namespace weft::serve::http {
namespace {

struct Route {
  std::string_view path;  // with all below it, where it ends with a slash
  const char* method;
  bool open;  // without a key
};
constexpr Route kRoutes[] = {{"/", "GET", true},
                             {"/health", "GET", true},
                             {"/ready", "GET", true},
                             {"/v1/models", "GET", false},
                             {"/v1/models/", "GET", false},
                             {"/metrics", "GET", false},
                             {"/inside", "GET", false},
                             {"/tokenize", "POST", false},
                             {"/detokenize", "POST", false},
                             {"/v1/completions", "POST", false},
                             {"/v1/chat/completions", "POST", false}};

bool is_of(const std::string& path, const Route& route) {
  const bool with_below = route.path.size() > 1 && route.path.ends_with('/');
  return with_below ? path.size() > route.path.size() && path.starts_with(route.path) : path == route.path;
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
}

bool Access::knows(const std::string& host_name) const {
  return host_names_.contains(host_name) || (any_address_ && is_address(host_name));
}

// A page of elsewhere must reach this server neither by a name that it points here nor by a script of its own.
void Access::check_host(const HttpRequest& head) const {
  const std::string host = head.header("host");
  if (!head.local && (host.empty() || !knows(name_of(host))))
    throw Failure(
        403, "host_refused",
        fmt::format("Host: {}; this server is not called so: start it with --host-name", host.substr(0, 100)));
  const std::string origin = lower(head.header("origin"));
  if (!origin.empty() && origin != "http://" + lower(host) && origin != "https://" + lower(host))
    throw Failure(403, "origin_refused", "Origin: pages of elsewhere may not use this server");
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
  // Beast takes a body of any other coding for none, and its bytes for the next request.
  const std::string coding = lower(head.header("transfer-encoding"));
  if (!coding.empty() && coding != "chunked") throw Failure(400, "bad_http", "Transfer-Encoding: allowed is chunked");
  const auto route =
      std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& r) { return is_of(head.path, r); });
  const bool open = route != std::end(kRoutes) && route->open;
  if (!open && !keys_.empty() && key_of(head).empty())
    throw Failure(401, "invalid_api_key", "Authorization: a key of this server is needed, as \"Bearer KEY\"");
  if (route == std::end(kRoutes))
    throw Failure(404, "not_found", fmt::format("{}: there is no such path", head.path.substr(0, 100)));
  if (head.method != route->method)
    throw Failure(405, "method_not_allowed", fmt::format("{}: allowed is {}", head.path, route->method));
  if (head.method == "POST") {
    if (media_type(head.header("content-type")) != "application/json")
      throw Failure(415, "unsupported_media_type", "Content-Type: application/json is needed");
  }
}

}  // namespace weft::serve::http
