#include "tests/cli/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "tests/support/temp_folder.h"

extern char** environ;

namespace weft::testing {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    read_end = ends[0], write_end = ends[1];
  }
  ~Pipe() { close_read(), close_write(); }
  void close_read() { close_one(read_end); }
  void close_write() { close_one(write_end); }
  static void close_one(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
};

// A terminal without echo: what is written to `user` is what the program reads.
struct Terminal {
  int user = -1, program = -1;
  Terminal() {
    user = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (user < 0 || grantpt(user) != 0 || unlockpt(user) != 0) throw std::runtime_error("posix_openpt");
    program = open(ptsname(user), O_RDWR | O_NOCTTY | O_CLOEXEC);
    termios settings{};
    if (program < 0 || tcgetattr(program, &settings) != 0) throw std::runtime_error("terminal");
    settings.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    tcsetattr(program, TCSANOW, &settings);
  }
  ~Terminal() { close(user), close(program); }
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::vector<std::string> Result::lines() const {
  std::vector<std::string> result;
  std::istringstream stream(out);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

nlohmann::json Result::last() const {
  const std::vector<std::string> all = lines();
  if (all.empty()) throw std::runtime_error("the program printed nothing; on stderr: " + err);
  return nlohmann::json::parse(all.back());
}

Result run_weft(const std::vector<std::string>& arguments, const RunOptions& options) {
  Pipe in, out, err;
  std::vector<std::string> argv = {WEFT_PROGRAM}, environment = options.environment;  // of two values the first counts
  std::string limits;
  if (options.descriptors > 0) limits += "ulimit -n " + std::to_string(options.descriptors) + "; ";
  if (options.address_space_gib > 0)
    limits += "ulimit -v " + std::to_string(int64_t{options.address_space_gib} << 20) + "; ";
  if (!limits.empty()) argv = {"/bin/sh", "-c", limits + "exec \"$@\"", "sh", WEFT_PROGRAM};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!std::string(*variable).starts_with("WEFT_")) environment.emplace_back(*variable);
  environment.push_back("WEFT_CACHE_DIR=" WEFT_TEST_KERNELS);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  std::optional<Terminal> terminal;
  if (options.terminal) terminal.emplace();
  posix_spawn_file_actions_adddup2(&actions, terminal ? terminal->program : in.read_end, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write_end, 1);
  posix_spawn_file_actions_adddup2(&actions, err.write_end, 2);
  if (!options.out_file.empty())
    posix_spawn_file_actions_addopen(&actions, 1, options.out_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (const int fd : options.closed) posix_spawn_file_actions_addclose(&actions, fd);
  if (!options.folder.empty()) posix_spawn_file_actions_addchdir_np(&actions, options.folder.c_str());
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, argv.front().c_str(), &actions, nullptr, pointers(argv).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::runtime_error("posix_spawn");
  in.close_read(), out.close_write(), err.close_write();

  // What a test gives is less than a pipe holds, so writing it first cannot block.
  if (options.input.size() > 60000) throw std::logic_error("input is too long for one write");
  if (write(terminal ? terminal->user : in.write_end, options.input.data(), options.input.size()) !=
      static_cast<ssize_t>(options.input.size()))
    throw std::runtime_error("write");
  if (options.interrupt_after_ms < 0) in.close_write();

  Result result;
  bool interrupted = false;
  const auto start = std::chrono::steady_clock::now(), deadline = start + std::chrono::seconds(60);
  while (out.read_end >= 0 || err.read_end >= 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "the program does not end; so far: " << result.out << result.err;
      kill(child, SIGKILL);
      break;
    }
    pollfd files[2] = {{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}};
    poll(files, 2, options.interrupt_after_ms >= 0 ? 20 : 200);
    const auto drain = [](const pollfd& file, int& fd, std::string& to) {
      if (fd < 0 || (file.revents & (POLLIN | POLLHUP)) == 0) return;
      char buffer[4096];
      const ssize_t count = read(fd, buffer, sizeof buffer);
      if (count <= 0) return Pipe::close_one(fd);
      to.append(buffer, static_cast<size_t>(count));
    };
    drain(files[0], out.read_end, result.out);
    drain(files[1], err.read_end, result.err);
    const auto lines = std::count(result.out.begin(), result.out.end(), '\n');
    const bool at_line = options.interrupt_at_line >= 0 && lines >= options.interrupt_at_line;
    const bool at_text =
        !options.interrupt_at_text.empty() && result.err.find(options.interrupt_at_text) != std::string::npos;
    const bool late = options.interrupt_after_ms >= 0 &&
                      std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(options.interrupt_after_ms);
    if (!interrupted && (at_line || at_text || late)) {
      interrupted = true;
      kill(child, SIGINT);
    }
    if (options.close_out_at_line >= 0 && lines >= options.close_out_at_line) out.close_read();
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

void expect_refusal(const Result& result, int exit_code, const std::string& code, const std::string& mentions) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_TRUE(result.err.starts_with("weft: " + code + ": ")) << result.err;
  EXPECT_NE(result.err.find(mentions), std::string::npos) << result.err;
}

std::string temporary_file(const std::string& name, const std::string& content) {
  static const TempFolder folder;
  return folder.write(name, content);
}

}  // namespace weft::testing
