#include "jit/host/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "support.h"

namespace weft::jit {
namespace {

ProcessResult run_shell(const std::string& script, std::chrono::milliseconds timeout = std::chrono::seconds{60}) {
  return run_process({.path = "/bin/sh", .arguments = {"-c", script}, .temp_dir = {}, .timeout = timeout});
}

TEST(RunProcess, ReturnsBothStreamsAndTheStatus) {
  const ProcessResult result = run_shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(result.end, ProcessResult::End::exited);
  EXPECT_EQ(result.code, 3);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "err\n");
}

TEST(RunProcess, TellsAProgramThatCannotBeStarted) {
  const ProcessResult result = run_process({.path = "/nowhere/g++", .arguments = {}, .temp_dir = {}});
  EXPECT_EQ(result.end, ProcessResult::End::not_started);
  EXPECT_EQ(result.code, ENOENT);
}

TEST(RunProcess, TellsASignalFromAStatus) {
  const ProcessResult result = run_shell("kill -SEGV $$");
  EXPECT_EQ(result.end, ProcessResult::End::signalled);
  EXPECT_EQ(result.code, SIGSEGV);
}

TEST(RunProcess, StopsWhatTakesTooLongAndWhatItStarted) {
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult result = run_shell("sleep 30 & echo $!; sleep 30", std::chrono::milliseconds{300});
  EXPECT_EQ(result.end, ProcessResult::End::timed_out);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{10});
  const pid_t helper = std::stoi(result.output);
  for (int i = 0; i < 1000; ++i) {  // it was killed; whoever adopted it may take a moment to collect it
    const std::string state = "/proc/" + std::to_string(helper) + "/stat";
    char text[256] = {};
    const int fd = open(state.c_str(), O_RDONLY);
    if (fd < 0) return;
    [[maybe_unused]] const auto count = ::read(fd, text, sizeof text - 1);
    close(fd);
    if (contains(text, ") Z")) return;
    usleep(10'000);
  }
  ADD_FAILURE() << "process " << helper << " is still there";
}

TEST(RunProcess, DoesNotWaitForAHelperThatKeepsTheStreams) {
  const ProcessResult result = run_shell("sleep 20 & echo done");
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.output, "done\n");
}

TEST(RunProcess, LeavesNoDescriptorOpenInTheProgram) {
  const int leaked = open("/dev/null", O_RDONLY);
  ASSERT_EQ(fcntl(leaked, F_DUPFD, 57), 57);
  const ProcessResult result =
      run_shell("for fd in 3 4 5 6 7 8 9 10 11 12 57; do [ -e /proc/$$/fd/$fd ] && echo $fd; done; true");
  EXPECT_EQ(result.output, "");
  close(57);
  close(leaked);
}

TEST(RunProcess, GivesTheProgramTheAbsoluteFoldersOfPathAndItsOwn) {
  const auto path_of = [](const char* value) {
    const ScopedEnv path("PATH", value);
    return run_shell("echo $PATH").output;
  };
  EXPECT_EQ(path_of("/a:relative::/b"), "/a:/b:/bin\n");
  EXPECT_EQ(path_of("/bin:/a"), "/bin:/a\n");
  EXPECT_EQ(path_of(""), "/usr/local/bin:/usr/bin:/bin\n");
  EXPECT_EQ(path_of(nullptr), "/usr/local/bin:/usr/bin:/bin\n");
}

TEST(RunProcess, GivesTheProgramItsInputItsFolderAndEnglish) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "text", 4), 4);
  close(ends[1]);
  const ScopedEnv language("LC_ALL", "de_DE.UTF-8"), path("CPATH", "/evil");
  const ProcessResult result = run_process({.path = "/bin/sh",
                                            .arguments = {"-c", "cat; echo \" $LC_ALL $TMPDIR [$CPATH] $(pwd)\""},
                                            .input = ends[0],
                                            .temp_dir = "/tmp/mine"});
  close(ends[0]);
  EXPECT_EQ(result.output, "text C /tmp/mine [] /\n");
}

TEST(RunProcess, KeepsTheFirstMebibyteOfATalkativeProgram) {
  const ProcessResult result = run_shell("head -c 3000000 /dev/zero; echo end >&2");
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.output.size(), size_t{1} << 20);
  EXPECT_EQ(result.errors, "end\n");
}

}  // namespace
}  // namespace weft::jit
