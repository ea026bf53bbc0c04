#include "cli/output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/error_message.h"
#include "sparse/files/whole_file.h"

namespace weft::cli {
namespace {

constexpr int kWaitMs = 50;

void check_out(bool ok) { check(ok, ErrorCode::io_error, "{}", stream_failure("standard output", errno)); }

void wait_for_room(const std::stop_token& end) {
  for (pollfd out{STDOUT_FILENO, POLLOUT, 0};;) {
    const int ready = poll(&out, 1, kWaitMs);
    if (ready > 0) return;  // to write, or to be told why not
    check_out(ready == 0 || errno == EINTR);
    check(!end.stop_requested(), ErrorCode::io_error, "standard output: nobody reads it");
  }
}

}  // namespace

void secure_standard_streams() {
  // Each gets the lowest number that is free. O_PATH: neither reading nor writing, as when closed.
  for (int fd = 0; fd <= 2; ++fd)
    if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
      check(open("/", O_PATH) == fd, ErrorCode::io_error, "descriptor {} is closed and cannot be taken", fd);
  // A handler instead of SIG_IGN, which the programs that we start would inherit.
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaction(signal, &action, nullptr);
}

void write_out(std::string_view text) { check_out(std::fwrite(text.data(), 1, text.size(), stdout) == text.size()); }

void flush_out() { check_out(std::fflush(stdout) == 0); }

void write_line(std::string_view line, const std::stop_token& end) {
  static bool cut = false;  // the last line, which ends before this one begins
  const std::string text = (cut ? "\n" : "") + std::string(line) + "\n";
  for (size_t written = 0; written < text.size();) {
    wait_for_room(end);  // a pipe has room for PIPE_BUF bytes then
    const auto count = write(STDOUT_FILENO, text.data() + written, std::min<size_t>(text.size() - written, PIPE_BUF));
    if (count < 0 && errno == EINTR) continue;
    check_out(count >= 0);
    written += static_cast<size_t>(count);
    cut = written < text.size();
  }
}

void write_svg(const std::string& path, std::string_view drawing) {
  try {
    sparse::write_whole(path, drawing);
  } catch (const Error& error) {
    throw Error(error.code(), "--svg " + message_of(error));
  }
}

std::string stream_failure(std::string_view stream, int error) {
  return error == EBADF ? fmt::format("{} is closed", stream) : fmt::format("{}: {}", stream, std::strerror(error));
}

}  // namespace weft::cli
