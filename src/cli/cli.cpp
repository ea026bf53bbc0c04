#include "cli/cli.h"

#include <csignal>
#include <cstdio>

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

void print_json(const nlohmann::json& object) {
  // Text that is not UTF-8 shows as U+FFFD: JSON cannot hold it.
  const std::string line = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

void listen_for_interrupt() {
  interrupted = false;
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // and no SA_RESTART: a read from the terminal returns
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace weft::cli
