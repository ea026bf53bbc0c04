#include "cli/cli.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
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
    case ErrorCode::device_failed:
    case ErrorCode::out_of_memory: return kMachineLacks;
    default: return kBadInput;
  }
}

std::string one_line(std::string_view message) {
  // What a file says must not write to the terminal what its user does not see.
  std::string line;
  for (const char c : message) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\r')
      line += ' ';
    else if ((code < 0x20 && c != '\t') || code == 0x7f)
      line += fmt::format("\\x{:02x}", code);
    else
      line += c;
  }
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

namespace {
// Readable once Ctrl-C was pressed: who waits for input waits for it, too, whichever thread the signal finds.
int interrupt_event() {
  static const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return event;
}
}  // namespace

void listen_for_interrupt() {
  eventfd_t ignored;
  eventfd_read(interrupt_event(), &ignored);
  interrupted = false;
  struct sigaction action {};
  action.sa_handler = [](int) {
    const int before = errno;
    interrupted = true;
    eventfd_write(interrupt_event(), 1);
    errno = before;
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

void stop_if_interrupted() {
  if (interrupted) throw Interrupted();
}

bool wait_for_input_or_signal(int fd) {
  pollfd files[2] = {{fd, POLLIN, 0}, {interrupt_event(), POLLIN, 0}};
  const bool signalled = poll(files, 2, -1) < 0 && errno == EINTR;
  stop_if_interrupted();
  return !signalled;
}

void wait_for_input(int fd) {
  while (!wait_for_input_or_signal(fd)) {
  }
}

}  // namespace weft::cli
