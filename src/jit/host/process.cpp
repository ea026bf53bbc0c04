#include "jit/host/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

#include "base/env.h"
#include "jit/files.h"

namespace weft::jit {
namespace {

using Clock = std::chrono::steady_clock;

// What is set below; and what would change the compiler's output, or the language of its messages, without being part
// of the key.
constexpr std::string_view kDropped[] = {"PATH=",
                                         "TMPDIR=",
                                         "LC_ALL=",
                                         "LC_MESSAGES=",
                                         "LANGUAGE=",
                                         "CPATH=",
                                         "C_INCLUDE_PATH=",
                                         "LIBRARY_PATH=",
                                         "CPLUS_INCLUDE_PATH=",
                                         "GCC_COLORS=",
                                         "GCC_EXEC_PREFIX=",
                                         "COMPILER_PATH=",
                                         "DEPENDENCIES_OUTPUT=",
                                         "SUNPRO_DEPENDENCIES="};

std::vector<std::string> child_environment(const ProcessRequest& request) {
  std::vector<std::string> result;
  for (char** item = environ; item != nullptr && *item != nullptr; ++item) {
    const std::string_view variable = *item;
    if (std::none_of(std::begin(kDropped), std::end(kDropped),
                     [&](std::string_view name) { return variable.starts_with(name); }))
      result.emplace_back(variable);
  }
  result.emplace_back("LC_ALL=C");
  result.push_back("PATH=" + search_path_of(request.path));
  if (!request.temp_dir.empty()) result.push_back("TMPDIR=" + request.temp_dir);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

struct Launch {
  const char* path;
  char* const* arguments;
  char* const* environment;
  int input, output, errors, failure;  // failure: a close-on-exec pipe that carries errno when exec fails
  pid_t parent;
};

// Runs in the child between vfork and exec, on the parent's memory: system calls only.
[[noreturn]] void enter_program(const Launch& launch) {
  // Descriptors above the standard ones, moved out of the way so that no dup2 overwrites one still needed.
  const int input = fcntl(launch.input, F_DUPFD, 10), output = fcntl(launch.output, F_DUPFD, 10);
  const int errors = fcntl(launch.errors, F_DUPFD, 10), failure = fcntl(launch.failure, F_DUPFD_CLOEXEC, 10);
  bool ready = input >= 0 && output >= 0 && errors >= 0 && failure >= 0;
  ready = ready && dup2(input, 0) == 0 && dup2(output, 1) == 1 && dup2(errors, 2) == 2;
  ready = ready && setpgid(0, 0) == 0 && chdir("/") == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
  if (ready && getppid() == launch.parent) {  // else the parent died before it could be watched
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction action {};
      if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_DFL) {
        action = {};
        action.sa_handler = SIG_DFL;
        sigaction(signal, &action, nullptr);
      }
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0)
      for (int fd = 3; fd < 4096; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
    execve(launch.path, launch.arguments, launch.environment);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(failure, &error, sizeof error);
  _exit(127);
}

// A function of its own, so that no variable of the caller lives across vfork.
[[gnu::noinline]] pid_t launch_program(const Launch& launch) {
  const pid_t pid = vfork();
  if (pid == 0) enter_program(launch);
  return pid;
}

struct Pipe {
  Fd read_end, write_end;
  bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
    return true;
  }
};

// Reads what is there. False at the end of the stream.
bool drain(int fd, std::string& into, size_t most) {
  std::array<char, 16384> buffer;
  const ssize_t count = read(fd, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  into.append(buffer.data(), std::min(static_cast<size_t>(count), most - into.size()));
  return count > 0;
}

ProcessResult watch(pid_t pid, Fd output, Fd errors, const ProcessRequest& request) {
  using std::chrono::milliseconds;
  ProcessResult result;
  const auto deadline = Clock::now() + request.timeout;
  for (const Fd* fd : {&output, &errors}) fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  auto collect = [&](milliseconds wait) {
    pollfd streams[] = {{output.get(), POLLIN, 0}, {errors.get(), POLLIN, 0}};
    poll(streams, 2, static_cast<int>(wait.count()));
    if (streams[0].revents != 0 && !drain(output.get(), result.output, request.most_output)) output.reset();
    if (streams[1].revents != 0 && !drain(errors.get(), result.errors, request.most_output)) errors.reset();
    return streams[0].revents != 0 || streams[1].revents != 0;
  };
  int status = 0;
  // A helper of the program may outlive it and keep the streams open, so its end counts, not theirs.
  for (milliseconds wait{1};; wait = std::min(wait * 2, milliseconds{20})) {
    if (output || errors)
      collect(wait);
    else
      usleep(50);
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) break;
    if (ended < 0 && errno == ECHILD) {  // the program that uses us ignores SIGCHLD: only the streams tell the end
      while (output || errors) collect(milliseconds{20});
      result.end = ProcessResult::End::exited;
      return result;
    }
    if (Clock::now() >= deadline) {
      kill(-pid, SIGKILL);
      kill(pid, SIGKILL);
      while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
      }
      result.end = ProcessResult::End::timed_out;
      return result;
    }
  }
  while ((output || errors) && collect(milliseconds{0})) {
  }
  result.end = WIFSIGNALED(status) ? ProcessResult::End::signalled : ProcessResult::End::exited;
  result.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace

std::string search_path_of(const std::string& program) {
  std::vector<std::string> folders = env::search_folders();
  const std::string own = program.substr(0, program.rfind('/'));
  if (!own.empty() && std::find(folders.begin(), folders.end(), own) == folders.end()) folders.push_back(own);
  return fmt::format("{}", fmt::join(folders, ":"));
}

ProcessResult run_process(const ProcessRequest& request) {
  ProcessResult result;
  std::vector<std::string> arguments = {request.path};
  arguments.insert(arguments.end(), request.arguments.begin(), request.arguments.end());
  std::vector<std::string> environment = child_environment(request);
  const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  Pipe output, errors, failure;
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!output.open() || !errors.open() || !failure.open() || !null) {
    result.code = errno;
    return result;
  }
  const Launch launch{request.path.c_str(),
                      argv.data(),
                      envp.data(),
                      request.input >= 0 ? request.input : null.get(),
                      output.write_end.get(),
                      errors.write_end.get(),
                      failure.write_end.get(),
                      getpid()};
  // No handler of this process may run in the child while both share their memory.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = launch_program(launch);
  const int launch_error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (Pipe* pipe : {&output, &errors, &failure}) pipe->write_end.reset();
  if (pid < 0) {
    result.code = launch_error;
    return result;
  }
  result = watch(pid, std::move(output.read_end), std::move(errors.read_end), request);
  // Looked at only now, and without waiting: a fork elsewhere in this process may hold the other end open.
  int exec_error = 0;
  fcntl(failure.read_end.get(), F_SETFL, O_NONBLOCK);
  if (result.end == ProcessResult::End::exited && result.code == 127 &&
      read(failure.read_end.get(), &exec_error, sizeof exec_error) == static_cast<ssize_t>(sizeof exec_error)) {
    result.end = ProcessResult::End::not_started;
    result.code = exec_error;
  }
  return result;
}

}  // namespace weft::jit
