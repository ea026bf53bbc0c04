#include "support.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/log.h"

namespace weft::jit {

ScopedEnv::ScopedEnv(const char* name, const char* value) : name_(name) {
  if (const char* before = std::getenv(name)) before_ = before;
  value != nullptr ? setenv(name, value, 1) : unsetenv(name);
}

ScopedEnv::~ScopedEnv() { before_ ? setenv(name_.c_str(), before_->c_str(), 1) : unsetenv(name_.c_str()); }

std::vector<std::string>& JitTest::warnings() {
  static std::vector<std::string> lines;
  return lines;
}

JitTest::JitTest() {
  auto set = [&](const char* name, const std::string& value) {
    environment_.push_back(std::make_unique<ScopedEnv>(name, value.c_str()));
  };
  set("WEFT_CACHE_DIR", cache_);
  set("WEFT_CXX", make_compiler("cxx"));
  set("TMPDIR", folder_);
  warnings().clear();
  log::set_sink([](int level, std::string_view line) {
    if (level == 1) warnings().emplace_back(line);
  });
}

JitTest::~JitTest() { log::set_sink(nullptr); }

std::string JitTest::make_compiler(const std::string& name, const std::string& before) {
  const std::string path = write(name,
                                 "#!/bin/sh\n"
                                 "case \"$*\" in\n"
                                 "  -print-prog-name*) echo cc1plus; exit 0;;\n"
                                 "  *module.so*) echo compile >> " +
                                     folder_ + "/compiles\n" + before +
                                     "\n;;\n"
                                     "esac\n"
                                     "exec " WEFT_TEST_CXX " \"$@\"\n");
  chmod(path.c_str(), 0700);
  return path;
}

int JitTest::num_compiles() const {
  const std::string lines = read(folder_ + "/compiles");
  return static_cast<int>(std::count(lines.begin(), lines.end(), '\n'));
}

std::string JitTest::text_of(int answer) const {
  return "// " + folder_ + "\nextern \"C\" __attribute__((visibility(\"default\"))) int answer() { return " +
         std::to_string(answer) + "; }\n";
}

int JitTest::answer_of(const std::shared_ptr<const Module>& module) {
  const auto answer = reinterpret_cast<int (*)()>(module->symbol("answer"));
  return answer != nullptr ? answer() : -1;
}

std::string JitTest::write(const std::string& name, const std::string& content) const {
  const std::string path = folder_ + "/" + name;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

std::string JitTest::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

pid_t JitTest::start_elsewhere(const std::string& text_file, const std::string& output_file) const {
  const std::string errors_file = output_file + ".errors";
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(open(output_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    dup2(open(errors_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    execl(WEFT_JIT_BUILDER, WEFT_JIT_BUILDER, text_file.c_str(), nullptr);
    _exit(126);
  }
  return pid;
}

JitTest::Built JitTest::build_elsewhere(const std::string& text) const {
  const std::string output = folder_ + "/elsewhere";
  const pid_t pid = start_elsewhere(write("elsewhere.cpp", text), output);
  int status = 0;
  waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(output), read(output + ".errors")};
}

std::vector<std::string> JitTest::names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(folder, error)) names.push_back(item.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string JitTest::entry_file() const {
  const auto names = names_in(cache_ + "/modules");
  EXPECT_EQ(names.size(), 1u);
  return names.empty() ? "" : cache_ + "/modules/" + names[0];
}

}  // namespace weft::jit
