// The bodies of /v1/chat/completions and /v1/completions as requests to the engine (docs/http.md lists the fields).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/ignored_fields.h"
#include "serve/http/limits.h"
#include "serve/http/prompter.h"
#include "weft/serve.h"

namespace weft::serve::http {

struct ApiRequest {
  bool chat = false, stream = false, include_usage = false;
  bool echo = false, logprobs = false;
  bool may_be_shorter = false;                 // max_tokens is the default: less where the context ends before it
  std::string model;                           // as the client calls it
  int n = 1;                                   // choices of a prompt that are answered: the best of those requested
  std::vector<Request> requests;               // one for each prompt; all alike but for it
  std::vector<std::string> texts;              // of the prompts, where echo wants them
  std::map<std::string, std::string> written;  // the engine's name of a field, and the client's where that is another
};

// Whether the model is called so.
bool is_served(const std::string& model, const ServerOptions& options);

// Throws Failure or weft::Error, which name the fields. `ignored`: hears of fields that have no meaning.
ApiRequest read_chat(std::string_view body, const Prompter& prompter, const ServerOptions& options,
                     IgnoredFields* ignored = nullptr);
ApiRequest read_completion(std::string_view body, const Prompter& prompter, const ServerOptions& options,
                           IgnoredFields* ignored = nullptr);
// /tokenize: the ids of a prompt or of messages. /detokenize: ids.
std::vector<int32_t> read_tokenize(std::string_view body, const Prompter& prompter, const ServerOptions& options,
                                   IgnoredFields* ignored = nullptr);
std::vector<int32_t> read_detokenize(std::string_view body, const ServerOptions& options,
                                     IgnoredFields* ignored = nullptr);

}  // namespace weft::serve::http
