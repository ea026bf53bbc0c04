#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/cpu/cpuid.h"
#include "weft/device.h"
#include "weft/error.h"

namespace weft {
namespace {

using namespace std::chrono_literals;

class WorkerTeamOf : public ::testing::TestWithParam<int> {};

TEST_P(WorkerTeamOf, RunsEveryWorkerOnceAJob) {
  WorkerTeam team(GetParam());
  ASSERT_EQ(team.num_workers(), GetParam());
  std::vector<int> calls(
      static_cast<size_t>(GetParam()));  // no atomics: each worker has its own, join makes it visible
  for (int run = 1; run <= 500; ++run) {
    team.run([&](int worker) { ++calls[static_cast<size_t>(worker)]; });
    for (int count : calls) ASSERT_EQ(count, run);
  }
}

TEST_P(WorkerTeamOf, SeesAfterABarrierWhatAllWroteBefore) {
  const int n = GetParam();
  WorkerTeam team(n);
  std::vector<int> written(static_cast<size_t>(n));
  std::atomic<int> wrong{0};
  team.run([&](int worker) {
    for (int round = 1; round <= 200; ++round) {
      written[static_cast<size_t>(worker)] = round;
      team.barrier();
      for (int value : written) wrong += value != round;
      team.barrier();
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_P(WorkerTeamOf, RethrowsTheFirstExceptionAfterAllEnded) {
  const int n = GetParam();
  WorkerTeam team(n);
  for (int thrower = 0; thrower < n; ++thrower) {
    std::atomic<int> ended{0};
    try {
      team.run([&](int worker) {
        if (worker == thrower) throw std::runtime_error("worker " + std::to_string(worker));
        std::this_thread::sleep_for(200us);
        ++ended;
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "worker " + std::to_string(thrower));
    }
    EXPECT_EQ(ended, n - 1);
  }
  std::atomic<int> calls{0};
  team.run([&](int) { ++calls; });
  EXPECT_EQ(calls, n);
}

TEST_P(WorkerTeamOf, DoesNotHangAtABarrierThatAFailedJobWillNotReach) {
  const int n = GetParam();
  WorkerTeam team(n);
  for (int round = 0; round < 20; ++round) {
    const int thrower = round % n;
    try {
      team.run([&](int worker) {
        for (int i = 0; i < round; ++i) team.barrier();
        if (worker == thrower) {
          if (round % 3 == 0) std::this_thread::sleep_for(300us);  // the others sleep at the barrier by then
          throw std::runtime_error("failed");
        }
        team.barrier();
        team.barrier();
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "failed");
    }
    team.run([&](int) { team.barrier(); });  // works again
  }
}

// Each job fails in its own way, at once, late, in several workers, before, at or after a barrier, and the next one
// comes at once: an error belongs to its own job alone, and no barrier waits for those that ended.
TEST_P(WorkerTeamOf, KeepsEachFailureToItsOwnJob) {
  const int n = GetParam();
  WorkerTeam team(n);
  unsigned random = 1;
  for (int job = 0; job < 2000; ++job) {
    random = random * 1664525 + 1013904223;
    const int barriers = static_cast<int>(random >> 8) % 4, fails_at = static_cast<int>(random >> 12) % 5;
    const unsigned throwers = (random >> 16) & ((1u << n) - 1);
    const bool fails = throwers != 0 && fails_at <= barriers;
    std::atomic<int> ended{0};
    std::vector<int> passed(static_cast<size_t>(n), 0);
    std::string thrown;
    try {
      team.run([&](int worker) {
        struct End {
          ~End() { ++count; }
          std::atomic<int>& count;
        } end{ended};
        for (int b = 0;; ++b) {
          if (b == fails_at && (throwers >> worker & 1) != 0)
            throw std::runtime_error(std::to_string(job) + " " + std::to_string(worker));
          if (b == barriers) break;
          team.barrier();
          ++passed[static_cast<size_t>(worker)];
        }
      });
    } catch (const std::runtime_error& error) {
      thrown = error.what();
    }
    ASSERT_EQ(ended, n) << "job " << job;  // run waits for all, whoever failed
    if (fails) {
      ASSERT_TRUE(thrown.starts_with(std::to_string(job) + " ")) << "job " << job << " gave '" << thrown << "'";
      ASSERT_EQ(throwers >> std::stoi(thrown.substr(thrown.find(' '))) & 1, 1u);
    } else {
      ASSERT_EQ(thrown, "") << "job " << job;
    }
    for (const int count : passed) {
      ASSERT_LE(count, fails ? fails_at : barriers) << "job " << job;  // none that a thrower did not reach
      ASSERT_TRUE(fails || count == barriers) << "job " << job;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, WorkerTeamOf, ::testing::Values(1, 2, 3, 7));  // more than this machine's CPUs, too

TEST(WorkerTeam, CallerIsWorkerZero) {
  WorkerTeam team(2);
  std::thread::id zero, one;
  team.run([&](int worker) { (worker == 0 ? zero : one) = std::this_thread::get_id(); });
  EXPECT_EQ(zero, std::this_thread::get_id());
  EXPECT_NE(one, zero);
}

TEST(WorkerTeam, KeepsItsThreadsBetweenJobs) {
  WorkerTeam team(3);
  std::vector<std::thread::id> first(3), second(3);
  team.run([&](int worker) { first[static_cast<size_t>(worker)] = std::this_thread::get_id(); });
  std::this_thread::sleep_for(2ms);  // asleep by now
  team.run([&](int worker) { second[static_cast<size_t>(worker)] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
}

TEST(WorkerTeam, QueuesJobsOfSeveralCallers) {
  WorkerTeam team(3);
  std::atomic<int> inside{0}, overlaps{0};
  std::vector<int> counts(3);
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 100; ++i)
        team.run([&](int worker) {
          if (inside.fetch_add(1) >= 3) ++overlaps;
          ++counts[static_cast<size_t>(worker)];
          team.barrier();
          --inside;
        });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(overlaps, 0);
  EXPECT_EQ(counts, std::vector<int>({400, 400, 400}));
}

// Several callers, some of whose jobs fail: each hears of its own job.
TEST(WorkerTeam, TellsEachCallerOfItsOwnJobsFailure) {
  WorkerTeam team(3);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&, c] {
      for (int i = 0; i < 300; ++i) {
        const bool fails = (i + c) % 3 == 0;
        const std::string own = std::to_string(c) + " " + std::to_string(i);
        std::string thrown;
        try {
          team.run([&](int worker) {
            if (fails && worker == i % 3) throw std::runtime_error(own);
            team.barrier();
          });
        } catch (const std::runtime_error& error) {
          thrown = error.what();
        }
        wrong += thrown != (fails ? own : "");
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(WorkerTeam, RunsNestedJobsOneWorkerAfterAnother) {
  WorkerTeam outer(2), inner(3);
  std::vector<std::vector<int>> order(2);
  outer.run([&](int worker) {
    const auto thread = std::this_thread::get_id();
    for (WorkerTeam* team : {&inner, &outer})
      team->run([&](int w) {
        EXPECT_EQ(std::this_thread::get_id(), thread);
        order[static_cast<size_t>(worker)].push_back(w);
      });
  });
  for (const auto& seen : order) EXPECT_EQ(seen, std::vector<int>({0, 1, 2, 0, 1}));
}

TEST(WorkerTeam, NestedJobsEndBeforeTheirExceptionIsRethrown) {
  WorkerTeam team(2);
  std::atomic<int> calls{0}, caught{0};
  team.run([&](int) {
    try {
      team.run([&](int) {
        ++calls;
        throw std::runtime_error("inner");
      });
    } catch (const std::runtime_error&) {
      ++caught;
    }
  });
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(caught, 2);
}

TEST(WorkerTeam, NestedJobsRethrowTheFirstOfTheirExceptions) {
  WorkerTeam outer(2), inner(3);
  std::vector<std::string> caught(2);
  outer.run([&](int worker) {
    try {
      inner.run([](int w) { throw std::runtime_error(std::to_string(w)); });
    } catch (const std::runtime_error& error) {
      caught[static_cast<size_t>(worker)] = error.what();
    }
  });
  EXPECT_EQ(caught, (std::vector<std::string>{"0", "0"}));
}

TEST(WorkerTeam, RefusesABarrierWhereItWouldHang) {
  WorkerTeam team(2), other(2);
  EXPECT_THROW(team.barrier(), InternalError);  // outside
  EXPECT_THROW(team.run([&](int) { team.run([&](int) { team.barrier(); }); }), InternalError);
  EXPECT_THROW(team.run([&](int) { other.run([&](int) { other.barrier(); }); }), InternalError);
  EXPECT_THROW(team.run([&](int) { other.barrier(); }), InternalError);
  team.run([&](int) {
    team.run([](int) {});
    team.barrier();  // after a nested run it is allowed again
  });
}

TEST(WorkerTeam, RefusesANumberOfWorkersOutOfRange) {
  EXPECT_THROW(WorkerTeam(-1), Error);
  EXPECT_THROW(WorkerTeam(1025), Error);
}

// As GOMP_parallel does; kMissing: fewer threads than it is asked for.
template <unsigned kMissing>
void lend(void (*body)(void*), void* data, unsigned num_threads, unsigned flags) {
  EXPECT_EQ(flags, 0u);
  std::vector<std::thread> others;
  for (unsigned i = 1 + kMissing; i < num_threads; ++i) others.emplace_back(body, data);
  body(data);
  for (std::thread& thread : others) thread.join();
}

TEST(WorkerTeam, RunsEveryWorkerOnceOnThreadsThatAreLent) {
  for (const WorkerTeam::Fork fork : {&lend<0>, &lend<1>, &lend<7>}) {
    WorkerTeam team(5, fork);
    ASSERT_EQ(team.num_workers(), 5);
    for (int run = 0; run < 20; ++run) {
      std::vector<int> calls(5);
      std::thread::id of_worker_0;
      team.run([&](int worker) {
        ++calls[static_cast<size_t>(worker)];
        if (worker == 0) of_worker_0 = std::this_thread::get_id();
        std::vector<int> inner;
        team.run([&](int w) { inner.push_back(w); });  // one after another
        EXPECT_EQ(inner, std::vector<int>({0, 1, 2, 3, 4}));
      });
      ASSERT_EQ(calls, std::vector<int>(5, 1));
      ASSERT_EQ(of_worker_0, std::this_thread::get_id());
    }
  }
}

TEST(WorkerTeam, UsesTheThreadsThatAreLent) {
  WorkerTeam team(3, lend<0>);
  std::atomic<int> inside{0};
  team.run([&](int) {  // ends when all three threads are inside
    ++inside;
    while (inside < 3) std::this_thread::yield();
  });
  EXPECT_EQ(inside, 3);
}

TEST(WorkerTeam, RethrowsFromThreadsThatAreLentAfterAllEnded) {
  WorkerTeam team(4, lend<1>);
  for (int thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int> ended{0};
    EXPECT_THROW(team.run([&](int worker) {
      ++ended;
      if (worker == thrower) throw std::runtime_error("worker");
    }),
                 std::runtime_error);
    EXPECT_EQ(ended, 4);
  }
  EXPECT_NO_THROW(team.run([](int) {}));
  EXPECT_THROW(team.run([&](int) { team.barrier(); }), Error);
}

TEST(WorkerTeam, RefusesAForkThatIsNoneAndWorkersOutOfRangeBesideOne) {
  EXPECT_THROW(WorkerTeam(2, nullptr), Error);
  EXPECT_THROW(WorkerTeam(0, lend<0>), Error);
  EXPECT_THROW(WorkerTeam(1025, lend<0>), Error);
}

TEST(WorkerTeam, DefaultsToWhatAffinityAndQuotaAllow) {
  const int n = WorkerTeam().num_workers();
  EXPECT_GE(n, 1);
  EXPECT_LE(n, cpu_info().num_cpus);
}

TEST(WorkerTeam, LeavesSignalsToTheProgramsThreads) {
  WorkerTeam team(2);
  std::atomic<int> blocked{0};
  team.run([&](int worker) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    if (worker == 1) blocked = sigismember(&mask, SIGINT);
  });
  EXPECT_EQ(blocked, 1);
}

TEST(WorkerTeam, SleepsWhenItHasNothingToDo) {
  WorkerTeam team(4);
  team.run([](int) {});
  std::this_thread::sleep_for(5ms);
  timespec before, after;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(100ms);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double used = double(after.tv_sec - before.tv_sec) + 1e-9 * double(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(used, 0.02);  // three spinning workers would use 0.1 s a CPU
}

TEST(WorkerTeam, ManyTeamsComeAndGo) {
  for (int i = 0; i < 30; ++i) {
    WorkerTeam used(3), unused(3);
    int sum = 0;
    std::vector<int> values(3);
    used.run([&](int worker) { values[static_cast<size_t>(worker)] = worker; });
    sum = std::accumulate(values.begin(), values.end(), 0);
    ASSERT_EQ(sum, 3);
  }
}

// Three times the time of a quiet machine is the design's limit; one in which waiters spin against those they
// wait for takes a hundred times as long. Generous, for machines that are busy with other things.
TEST(WorkerTeam, FarMoreWorkersThanCpusStillFinish) {
  WorkerTeam team(8 * std::max(2, cpu_info().num_cpus));
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) team.run([&](int) { team.barrier(); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(WorkerTeam, SharedTeamIsOne) {
  EXPECT_EQ(&WorkerTeam::shared(), &WorkerTeam::shared());
  EXPECT_EQ(&Stream().team(), &WorkerTeam::shared());
  WorkerTeam own(2);
  EXPECT_EQ(&Stream::cpu(own).team(), &own);
}

}  // namespace
}  // namespace weft
