// What a client may take of the server; each is an option of `weft serve` (docs/serving.md).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "weft/model.h"

namespace weft::serve::http {

struct Limits {
  int64_t connections = 1024;
  int64_t header_bytes = 16 << 10, body_bytes = 8 << 20;
  int64_t waiting_bytes = 32 << 20;    // of a key's bodies, short or long, that wait to be read
  int64_t header_s = 10, body_s = 30;  // to send all of it
  int64_t idle_s = 75;                 // between requests of a connection
  int64_t json_depth = 32;
  int64_t prompt_tokens = 0;  // 0: what the context holds
  int64_t n = 64;             // choices of all prompts of a request
  int64_t queue_s = 60, request_s = 600;
  int64_t unread_bytes = 256 << 10;  // that a client leaves unread before its generation pauses
  int64_t unread_s = 30;             // that it may take no byte before its connection ends
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8080;                  // 0: any free one
  std::string unix_socket;              // instead of host and port
  std::vector<std::string> api_keys;    // none: everybody may ask
  std::vector<std::string> host_names;  // further names that a Host header may have
  // Of pages elsewhere that may ask, as browsers write them: "https://example.org", "null"; "*": any.
  std::vector<std::string> allowed_origins;
  std::string model_name;
  std::vector<std::string> aliases;                  // further names that clients may ask for the model by; "*": any
  std::optional<SamplingDefaults> default_sampling;  // of the model, as /v1/models lists it for clients that ask
  bool strict = false;                               // fields that no request has are refused, not ignored
  bool reproducible = false;                         // requests are, unless they say otherwise
  Limits limits;
  int64_t drain_s = 30;
  // One JSON object a request; none: no log. It is called by a thread of its own, and may wait until `end` is asked
  // for; what throws is counted.
  std::function<void(const std::string& line, const std::stop_token& end)> log = {};
};

}  // namespace weft::serve::http
