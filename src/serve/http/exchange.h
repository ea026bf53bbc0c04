// One HTTP request and the way back, apart from sockets.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::serve::http {

struct HttpRequest {
  std::string method, path;  // the path without its query
  std::map<std::string, std::string>
      headers;  // names in small letters; of several with one name all, with ", " between
  std::string body;
  bool local = false;     // through a unix socket
  bool http_1_0 = false;  // which has no chunks, and need not say its host
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Response {
  int status = 200;
  std::string body = {}, content_type = "application/json";
  Headers headers = {};
};

struct Failure;
Response response_of(const Failure& failure);

// The way back. Any thread may answer, once: with a response, or with events and their end.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void respond(Response response) = 0;
  virtual void begin_events() = 0;
  virtual void send_event(std::string data) = 0;
  virtual void end_events() = 0;
  // Both are called by the thread of the sockets: `closed` when the client has gone before the end, `stalled` when it
  // leaves too much unread, and again when it has read it.
  virtual void watch(std::function<void()> closed, std::function<void(bool)> stalled) = 0;
};

}  // namespace weft::serve::http
