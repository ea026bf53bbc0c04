#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <thread>

#include "weft/device.h"
#include "weft/error.h"

#if defined(__SANITIZE_THREAD__)
// By default a child of a process with threads may not start threads under this sanitizer.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace weft {
namespace {

using namespace std::chrono_literals;

// Whether `check` holds in a child process, within ten seconds.
bool holds_in_child(const std::function<bool()>& check) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(check() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool runs_with_its_own_threads(WorkerTeam& team) {
  std::atomic<int> calls{0};
  std::vector<std::thread::id> threads(static_cast<size_t>(team.num_workers()));
  for (int i = 0; i < 20; ++i)
    team.run([&](int worker) {
      threads[static_cast<size_t>(worker)] = std::this_thread::get_id();
      team.barrier();
      ++calls;
    });
  return calls == 20 * team.num_workers() &&
         std::set(threads.begin(), threads.end()).size() == static_cast<size_t>(team.num_workers());
}

TEST(WorkerTeamFork, TeamWorksInTheChildAndStillInTheParent) {
  WorkerTeam team(3);
  ASSERT_TRUE(runs_with_its_own_threads(team));
  EXPECT_TRUE(holds_in_child([&] { return runs_with_its_own_threads(team); }));
  EXPECT_TRUE(runs_with_its_own_threads(team));
}

TEST(WorkerTeamFork, TeamThatNeverRanWorksInTheChild) {
  WorkerTeam team(3);
  EXPECT_TRUE(holds_in_child([&] { return runs_with_its_own_threads(team); }));
}

TEST(WorkerTeamFork, TeamWorksInAGrandchild) {
  WorkerTeam team(2);
  team.run([](int) {});
  EXPECT_TRUE(holds_in_child([&] {
    return runs_with_its_own_threads(team) && holds_in_child([&] { return runs_with_its_own_threads(team); });
  }));
}

TEST(WorkerTeamFork, WorkersTakeTurnsInTheChildWhereThreadsWereLent) {
  static int lent = 0;
  WorkerTeam team(3, [](void (*body)(void*), void* data, unsigned, unsigned) {
    ++lent;
    body(data);
  });
  team.run([](int) {});
  EXPECT_EQ(lent, 1);
  EXPECT_TRUE(holds_in_child([&] {
    std::vector<int> order;
    team.run([&](int worker) { order.push_back(worker); });
    return lent == 1 && order == std::vector<int>({0, 1, 2});
  }));
}

TEST(WorkerTeamFork, ChildMayDestroyATeamItNeverUsed) {
  auto team = std::make_unique<WorkerTeam>(3);
  team->run([](int) {});
  EXPECT_TRUE(holds_in_child([&] {
    team.reset();
    return true;
  }));
  EXPECT_TRUE(runs_with_its_own_threads(*team));
}

TEST(WorkerTeamFork, ChildOfABusyTeamHasAFreeOne) {
  WorkerTeam team(2);
  std::atomic<int> running{0};
  std::atomic<bool> stop{false};
  std::thread caller([&] {
    team.run([&](int) {
      ++running;
      while (!stop) std::this_thread::sleep_for(100us);
    });
  });
  // Until both run: a thread that is still starting may hold locks of AddressSanitizer, whose version 12 does not hand
  // them over at a fork, and the child's own threads would then wait for it for ever.
  while (running < 2) std::this_thread::sleep_for(100us);
  EXPECT_TRUE(holds_in_child([&] { return runs_with_its_own_threads(team); }));
  stop = true;
  caller.join();
}

TEST(WorkerTeamFork, JobThatForksAndReturnsInTheChildFailsThereAndDoesNotHang) {
  WorkerTeam team(2);
  team.run([](int) {});
  pid_t child = -1;
  const pid_t parent = getpid();
  try {
    team.run([&](int worker) {
      if (worker == 0) child = fork();
    });
  } catch (const InternalError&) {
    _exit(getpid() != parent && runs_with_its_own_threads(team) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace weft
