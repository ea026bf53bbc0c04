// Who may ask, from where, for what: all that a request's head says.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "serve/http/exchange.h"
#include "serve/http/limits.h"

namespace weft::serve::http {

class Access {
 public:
  // Throws Error(invalid_argument) for an allowed origin that is none.
  explicit Access(const ServerOptions& options);
  // Throws Failure(400 | 401 | 403 | 404 | 405 | 415 | 417).
  void check(const HttpRequest& head) const;
  // What an answer to `head` says beside its own headers: which methods its path has, and to a browser, which pages may
  // read it.
  Headers headers_for(const HttpRequest& head, int status) const;
  // The key that a request came with; empty where none is needed.
  std::string key_of(const HttpRequest& head) const;

 private:
  void check_host(const HttpRequest& head) const;
  bool knows(const std::string& host_name) const;
  bool allows_origin(const std::string& origin) const;

  std::vector<std::string> keys_;
  std::set<std::string> host_names_, allowed_origins_;
  bool any_address_;
};

// Loopback, where no key is needed.
bool is_loopback(const std::string& host);

}  // namespace weft::serve::http
