#include "cli/cli.h"

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "cli/output.h"

namespace weft::cli {

std::atomic<bool> interrupted{false};

ExitCode exit_code_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::unsupported:
    case ErrorCode::no_compiler:
    case ErrorCode::cache_refused:
    case ErrorCode::out_of_memory: return kMachineLacks;
    default: return kBadInput;
  }
}

std::string one_line(std::string_view message) {
  std::string line(message);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

std::string failure_text(const Error& error) {
  const std::string_view message = error.what();
  if (error.code() != ErrorCode::compile_failed) return one_line(message);
  std::string text(message.substr(0, message.find_last_not_of('\n') + 1));
  std::erase(text, '\r');
  return text;
}

void print_json(const nlohmann::json& object) {
  // Text that is not UTF-8 shows as U+FFFD: JSON cannot hold it.
  const std::string line = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  write_out(line);
  flush_out();
}

void listen_for_interrupt() {
  interrupted = false;
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // and no SA_RESTART: a read from the terminal returns
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace weft::cli
