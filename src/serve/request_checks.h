// What a request may ask for.
#pragma once

#include "base/check.h"
#include "serve/limits_met.h"
#include "serve/model_runner.h"
#include "weft/serve.h"

namespace weft::serve {

inline constexpr int kMostChoices = 64, kMostLogprobs = 20, kMostStops = 16, kMostBiases = 1024;
inline constexpr size_t kMostStopBytes = 1024;

// What is wrong with a field of a request, and its name as clients of the server write it.
struct FieldError : Error, OfLimit {
  FieldError(ErrorCode code, std::string name, const std::string& message, std::optional<Limit> which = {})
      : Error(code, message), OfLimit{which}, field(std::move(name)) {}
  // Without the code in front of it. It begins with the field, unless it is of several.
  std::string message() const { return std::string(what()).substr(to_string(code()).size() + 2); }
  std::string field;
};

// Throws FieldError where the server's limit is the reason.
template <class... Args>
void check_limit(bool ok, const char* field, Limit limit, ErrorCode code, fmt::format_string<Args...> format,
                 Args&&... args) {
  if (!ok) [[unlikely]]
    throw FieldError(code, field, fmt::format(format, std::forward<Args>(args)...), limit);
}

// What is wrong with a request, whatever the model.
std::vector<FieldError> faults_of_values(const Request& request);
// Throws FieldError(invalid_argument | invalid_token | context_full | unsupported), which names all faults.
void check_request(const Request& request, const ModelRunner::Limits& limits, int max_running);

}  // namespace weft::serve
