#include "weft/error.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace weft {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::invalid_shape: return "invalid_shape";
    case ErrorCode::invalid_stride: return "invalid_stride";
    case ErrorCode::invalid_dtype: return "invalid_dtype";
    case ErrorCode::invalid_indptr: return "invalid_indptr";
    case ErrorCode::invalid_page: return "invalid_page";
    case ErrorCode::invalid_device: return "invalid_device";
    case ErrorCode::plan_mismatch: return "plan_mismatch";
    case ErrorCode::workspace_too_small: return "workspace_too_small";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::no_compiler: return "no_compiler";
    case ErrorCode::compile_failed: return "compile_failed";
    case ErrorCode::cache_refused: return "cache_refused";
    case ErrorCode::io_error: return "io_error";
    case ErrorCode::invalid_file: return "invalid_file";
    case ErrorCode::invalid_template: return "invalid_template";
    case ErrorCode::invalid_token: return "invalid_token";
    case ErrorCode::context_full: return "context_full";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::device_failed: return "device_failed";
    case ErrorCode::queue_full: return "queue_full";
  }
  return "unknown";
}

namespace {

// what() is a C string: a zero byte that a message quotes would end it.
std::string text_of(ErrorCode code, const std::string& message) {
  std::string text = fmt::format("{}: {}", to_string(code), message);
  std::replace(text.begin(), text.end(), '\0', '?');
  return text;
}

}  // namespace

void failure::throw_error(ErrorCode code, fmt::string_view format, fmt::format_args args) {
  throw Error(code, fmt::vformat(format, args));
}
void failure::throw_internal_error(fmt::string_view format, fmt::format_args args) {
  throw InternalError(fmt::vformat(format, args));
}

Error::Error(ErrorCode code, const std::string& message) : std::runtime_error(text_of(code, message)), code_(code) {}

}  // namespace weft
