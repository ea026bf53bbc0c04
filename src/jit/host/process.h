// Runs another program and collects what it prints. No shell in between.
//
//   ProcessResult result = run_process({.path = "/usr/bin/g++", .arguments = {"--version"}});
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace weft::jit {

struct ProcessRequest {
  std::string path;                    // absolute
  std::vector<std::string> arguments;  // after argv[0], which is `path`
  int input = -1;                      // becomes stdin; -1: /dev/null
  std::string temp_dir;                // TMPDIR of the program; empty: inherited
  std::chrono::milliseconds timeout{120'000};
  size_t most_output = size_t{1} << 20;  // bytes that are kept of each stream
};

struct ProcessResult {
  enum class End { exited, signalled, timed_out, not_started };
  End end = End::not_started;
  int code = 0;                // exit status, signal, or errno of what could not be started
  std::string output, errors;  // stdout and stderr
  bool ok() const { return end == End::exited && code == 0; }
};

// What the program's PATH is: env::search_folders and, so that a compiler finds the assembler beside it, the program's
// own.
std::string search_path_of(const std::string& program);

// The program starts in "/", with messages in English, in a process group of its own that is killed when the time
// is over, and is killed when this thread's process dies. It gets no descriptor but 0, 1 and 2.
ProcessResult run_process(const ProcessRequest& request);

}  // namespace weft::jit
