#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "jit/cache.h"
#include "support.h"

namespace weft::jit {
namespace {

class RaceTest : public JitTest {
 protected:
  void wait_for(const std::string& path) {
    struct stat status {};
    for (int i = 0; i < 3000 && stat(path.c_str(), &status) != 0; ++i) usleep(10'000);
    ASSERT_EQ(stat(path.c_str(), &status), 0) << path;
  }
};

TEST_F(RaceTest, CompilesOnceForSixteenProcesses) {
  const std::string text = write("text.cpp", text_of(16));
  std::vector<pid_t> processes;
  for (int i = 0; i < 16; ++i) processes.push_back(start_elsewhere(text, folder_ + "/out" + std::to_string(i)));
  int num_compiled = 0;
  for (int i = 0; i < 16; ++i) {
    int status = 0;
    waitpid(processes[static_cast<size_t>(i)], &status, 0);
    const std::string output = read(folder_ + "/out" + std::to_string(i));
    num_compiled += output == "compiler 16\n";
    EXPECT_TRUE(output == "compiler 16\n" || output == "disk 16\n")
        << output << read(folder_ + "/out" + std::to_string(i) + ".errors");
  }
  EXPECT_EQ(num_compiled, 1);
  EXPECT_EQ(num_compiles(), 1);
  EXPECT_EQ(names_in(cache_ + "/modules").size(), 1u);
  EXPECT_TRUE(names_in(cache_ + "/build").empty());
}

TEST_F(RaceTest, GoesOnAfterAKilledBuilder) {
  const std::string sleeper = make_compiler("sleeper", "echo $$ > " + folder_ + "/sleeping; exec sleep 30");
  const std::string text = write("text.cpp", text_of(17));
  pid_t builder = 0;
  {
    const ScopedEnv slow("WEFT_CXX", sleeper.c_str());
    builder = start_elsewhere(text, folder_ + "/out");
  }
  wait_for(folder_ + "/sleeping");
  kill(builder, SIGKILL);
  waitpid(builder, nullptr, 0);
  EXPECT_EQ(names_in(cache_ + "/build").size(), 1u);  // what the killed one could not remove

  make_compiler("sleeper");  // the same program, awake: the same path, but another identity and key
  const ScopedEnv awake("WEFT_CXX", sleeper.c_str());
  EXPECT_EQ(answer_of(load(request_of(17))), 17);
  EXPECT_TRUE(names_in(cache_ + "/build").empty());
  EXPECT_EQ(names_in(cache_ + "/modules").size(), 1u);
}

TEST_F(RaceTest, StopsTheCompilerOfAKilledBuilder) {
  const std::string sleeper = make_compiler("sleeper", "echo $$ > " + folder_ + "/sleeping; exec sleep 30");
  const ScopedEnv slow("WEFT_CXX", sleeper.c_str());
  const pid_t builder = start_elsewhere(write("text.cpp", text_of(18)), folder_ + "/out");
  wait_for(folder_ + "/sleeping");
  while (read(folder_ + "/sleeping").empty()) usleep(1000);
  const pid_t compiler = std::stoi(read(folder_ + "/sleeping"));
  kill(builder, SIGKILL);
  waitpid(builder, nullptr, 0);
  const std::string state = "/proc/" + std::to_string(compiler) + "/stat";
  for (int i = 0; i < 1000; ++i, usleep(10'000)) {
    const std::string text = read(state);
    if (text.empty() || contains(text, ") Z")) return;
  }
  ADD_FAILURE() << "the compiler is still there";
}

TEST_F(RaceTest, WaitsForABuilderAndTakesItsModule) {
  const std::string slow = make_compiler("slow", "echo > " + folder_ + "/started; sleep 0.3");
  const ScopedEnv wanted("WEFT_CXX", slow.c_str());
  const pid_t builder = start_elsewhere(write("text.cpp", text_of(19)), folder_ + "/out");
  wait_for(folder_ + "/started");
  EXPECT_EQ(answer_of(load(request_of(19))), 19);
  EXPECT_EQ(origin_, Origin::disk);
  waitpid(builder, nullptr, 0);
  EXPECT_EQ(num_compiles(), 1);
}

TEST_F(RaceTest, DoesNotDisturbABuildInProgressWhenCleaning) {
  const auto cache = Cache::open(cache_, true);
  ASSERT_TRUE(cache);
  const auto held = cache->lock("held");
  ASSERT_TRUE(held);
  write("cache/build/held/part", "x");
  mkdir((cache_ + "/build/stale").c_str(), 0700);
  write("cache/build/stale/part", "x");
  cache->remove_stale_builds();
  EXPECT_EQ(names_in(cache_ + "/build"), std::vector<std::string>{"held"});
  EXPECT_EQ(names_in(cache_ + "/build/held"), std::vector<std::string>{"part"});
}

}  // namespace
}  // namespace weft::jit
