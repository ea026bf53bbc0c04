#include "serve/http/failure.h"

#include <cctype>
#include <nlohmann/json.hpp>

#include "serve/http/json.h"

namespace weft::serve::http {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

int status_of(const std::string& code) {
  if (code == to_string(ErrorCode::queue_full)) return 429;
  if (code == to_string(ErrorCode::out_of_memory)) return 503;
  if (code == "queue_timed_out") return 503;
  if (code == "timed_out") return 504;
  if (code == to_string(ErrorCode::io_error) || code == to_string(ErrorCode::device_failed) || code == "internal")
    return 500;
  return 400;
}

}  // namespace

std::string Failure::json() const {
  return dump({{"error",
                {{"message", what()},
                 {"type", type_of(status)},
                 {"param", param.empty() ? nlohmann::json() : nlohmann::json(param)},
                 {"code", code}}}});
}

Failure Failure::with_field(const std::string& name) const {
  std::string message = what();
  const std::string several = "wrong. ";     // the first of several faults
  const auto names_field = [&](size_t at) {  // "n" is no field of "no tokens"
    const size_t end = at + param.size();
    return end == message.size() ||
           (std::isalnum(static_cast<unsigned char>(message[end])) == 0 && message[end] != '_');
  };
  const size_t behind = message.find(several + param);
  const size_t at = message.starts_with(param) ? 0 : behind == std::string::npos ? behind : behind + several.size();
  if (at != std::string::npos && names_field(at)) message.replace(at, param.size(), name);
  return {status, code, message, name, limit};
}

std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
  size_t end = most;
  while (end > 0 && most - end < 3 && continues(end)) --end;  // three bytes at most follow a character's first
  return text.substr(0, end) + "...";
}

// Clients shorten a conversation on OpenAI's code of a full context; some of them see the message alone.
Failure failure_of_code(const std::string& code, const std::string& message) {
  if (code != to_string(ErrorCode::context_full)) return {status_of(code), code, message};
  const std::string known = "context_length_exceeded";
  return {status_of(code), known, message + " (" + known + ")"};
}

Failure failure_of(const FieldError& error) {
  Failure failure = failure_of_code(std::string(to_string(error.code())), error.message());
  failure.param = error.field;
  failure.limit = error.limit;
  return failure;
}

Failure failure_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Failure& failure) {
    return failure;
  } catch (const FieldError& error) {
    return failure_of(error);
  } catch (const Error& error) {
    return failure_of_code(std::string(to_string(error.code())), error.what());
  } catch (const std::bad_alloc&) {
    return failure_of_code(std::string(to_string(ErrorCode::out_of_memory)), "the system gave no more memory");
  } catch (const std::exception& error) {
    return failure_of_code("internal", error.what());
  }
}

}  // namespace weft::serve::http
