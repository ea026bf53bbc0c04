// A kernel cache, a compiler and a log of one test's own.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jit/host/module.h"
#include "tests/support/temp_folder.h"
#include "weft/error.h"

namespace weft::jit {

// Sets a variable for the life of the object; nullptr unsets it.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value);
  ~ScopedEnv();
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

class JitTest : public ::testing::Test {
 protected:
  JitTest();
  ~JitTest() override;

  // The compiler of this build behind a script: counts its compiles and names no program to hash, so that its
  // identity costs nothing. `before` runs in the script ahead of each compile.
  std::string make_compiler(const std::string& name, const std::string& before = "");
  int num_compiles() const;
  // A text whose answer() returns `answer`; each test has its own, so that none finds another's in memory.
  std::string text_of(int answer) const;
  Request request_of(int answer) const {
    return {.name = "answer " + std::to_string(answer),
            .text = text_of(answer),
            .target = host_target(Isa::plain),
            .flags = {}};
  }
  // The request's module, and where it came from.
  std::shared_ptr<const Module> load(const Request& request) {
    const Loaded loaded = host_module(request);
    origin_ = loaded.origin;
    return loaded.module;
  }
  Origin origin_ = Origin::memory;
  static int answer_of(const std::shared_ptr<const Module>& module);
  std::string write(const std::string& name, const std::string& content) const;  // into the test's folder
  static std::string read(const std::string& path);
  // Runs jit_builder on a text, in a process of its own.
  struct Built {
    int exit_code = 0;
    std::string output, errors;
  };
  Built build_elsewhere(const std::string& text) const;
  // Starts it without waiting; its output goes to `output_file`.
  pid_t start_elsewhere(const std::string& text_file, const std::string& output_file) const;

  std::string entry_file() const;  // the only file under modules/
  static std::vector<std::string> names_in(const std::string& folder);
  static std::vector<std::string>& warnings();

  const testing::TempFolder temp_;
  const std::string folder_ = temp_.path();
  std::string cache_ = folder_ + "/cache";  // not made yet

 private:
  std::vector<std::unique_ptr<ScopedEnv>> environment_;
};

// The error that `call` throws; a failure of the test when it throws none.
template <class Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::invalid_argument, "nothing was thrown");
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace weft::jit
