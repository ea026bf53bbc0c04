#include "cli/output.h"

#include <fcntl.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace weft::cli {
namespace {

void check_out(bool ok) { check(ok, ErrorCode::io_error, "{}", stream_failure("standard output", errno)); }

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

std::string stream_failure(std::string_view stream, int error) {
  return error == EBADF ? fmt::format("{} is closed", stream) : fmt::format("{}: {}", stream, std::strerror(error));
}

}  // namespace weft::cli
